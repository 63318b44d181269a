//! Georeferencing: transform, coordinate reference system and sample metadata of an array, for all formats,
//! from GeoZarr, CF, GDAL and rioxarray metadata.
//!
//! A result is what all metadata agree on: an array with contradictions has no georeference.

pub(crate) mod axis;
pub(crate) mod bands;
pub(crate) mod context;
pub(crate) mod crs_metadata;
pub(crate) mod grid;
pub(crate) mod nifti_header;
pub(crate) mod overview;
pub(crate) mod raster;
pub(crate) mod samples;
pub(crate) mod scale;
pub(crate) mod transform;

use crate::conventions::cf::grid_mapping;
use crate::conventions::geozarr;
use crate::node::{ArrayView, ContentError, NodeResolver};
use context::{Context, Groups, Notes};
use grid::Grid;
use raster::Raster;
use samples::SampleMetadata;
use transform::Georef;

/// The metadata of an array as a raster.
#[derive(Debug)]
pub(crate) struct RasterMetadata {
    pub(crate) raster: Raster,
    pub(crate) georef: Georef,
    pub(crate) samples: SampleMetadata,
}

impl RasterMetadata {
    /// Reads the metadata of an array and its groups.
    ///
    /// # Errors
    /// Returns why the array is no raster, or an error of the store.
    pub(crate) fn of(context: &Context<'_>, notes: &mut Notes) -> Result<Self, ContentError> {
        let raster = Self::raster(context)?;
        let georef = transform::find(context, &raster, notes)?;
        let samples = SampleMetadata::of(context, &raster, notes)?;
        Ok(Self {
            raster,
            georef,
            samples,
        })
    }

    /// Returns the raster of an array, with the spatial axes that the array or a group above it declares.
    ///
    /// # Errors
    /// Returns why the array is no raster.
    pub(crate) fn raster(context: &Context<'_>) -> Result<Raster, String> {
        let names = geozarr::spatial_axes(context);
        Raster::of(context.view, names.as_ref())
    }

    /// Returns the grid of an array whose system is not that of a grid mapping that its attributes name; `None`
    /// if the array has no readable grid.
    ///
    /// # Errors
    /// Temporary errors of the store; others mean `None`.
    pub(crate) fn grid(
        view: &ArrayView<'_>,
        nodes: &dyn NodeResolver,
    ) -> Result<Option<Grid>, ContentError> {
        if view.shape().len() < 2 {
            return Ok(None);
        }
        let mut notes = Notes::default();
        let found = Groups::above(view, nodes, &mut notes).and_then(|groups| {
            let context = Context::new(view, nodes, &groups);
            let may_have_crs = crs_metadata::may_have_crs(&context)
                || nodes.assumes_wgs84()
                || grid_mapping::has_default(&context)?;
            if !may_have_crs {
                return Ok(None);
            }
            let raster = Self::raster(&context)?;
            if grid_mapping::is_cf(&context, &raster)? {
                return Ok(None);
            }
            let georef = transform::find(&context, &raster, &mut notes)?;
            let transform = georef.corner_transform();
            Ok(georef.crs.zip(transform).map(|(crs, transform)| Grid {
                crs,
                transform,
                mapping: georef.default_mapping,
                spatial_axes: [(raster.down, raster.height), (raster.across, raster.width)],
            }))
        });
        match found {
            Err(ContentError::Failed(error)) if !error.is_lasting() => {
                Err(ContentError::Failed(error))
            }
            Err(_) => Ok(None),
            found => found,
        }
    }

    /// Returns the metadata of the last two axes of an array as a raster; `None` for arrays without numbers. If
    /// the spatial axes are others, the elements have the same meaning, but no georeference.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of_planes(
        view: &ArrayView<'_>,
        nodes: &dyn NodeResolver,
        notes: &mut Notes,
    ) -> Result<Option<Self>, ContentError> {
        let groups = Groups::above(view, nodes, notes)?;
        let context = Context::new(view, nodes, &groups);
        match Self::of(&context, notes) {
            Ok(metadata) if !metadata.raster.is_chunky => return Ok(Some(metadata)),
            Ok(_) | Err(ContentError::Absent(_)) => {}
            Err(error) => return Err(error),
        }
        let Ok(raster) = Raster::of_last_axes(view) else {
            return Ok(None);
        };
        Ok(Some(Self {
            georef: Georef::default(),
            samples: SampleMetadata::of(&context, &raster, notes)?,
            raster,
        }))
    }
}
