//! The description of an array for files of images and volumes: axes from OME-Zarr, N5, evenly spaced
//! coordinates or the transform of the raster; values from CF; channels from OME-Zarr.

use serde_json::{Map, Value as Json, json};

use crate::conventions::cf;
use crate::conventions::crs::Crs;
use crate::conventions::description::{Axis, AxisKind, Channel, Field, Orientation, Transform};
use crate::conventions::georef::RasterMetadata;
use crate::conventions::georef::axis::{Axis as CoordinateAxis, Steps, reinterpret};
use crate::conventions::georef::context::{Context, Groups, Notes};
use crate::conventions::georef::nifti_header;
use crate::conventions::georef::raster::direction_of;
use crate::conventions::georef::samples::{self, is_packed_by_cf, packing};
use crate::conventions::georef::scale::ome_image;
use crate::conventions::georef::transform::declared_crs;
use crate::conventions::missing::MissingValues;
use crate::conventions::text::shown;
use crate::conventions::{geozarr, n5, ome};
use crate::node::{ArrayView, ContentError, NodeResolver, Number, Value, ViewNode};
use crate::zarr::ZarrFormat;

/// What all conventions say of an array.
#[derive(Debug, Default)]
pub(crate) struct Description {
    /// The name of the image.
    pub(crate) name: Option<String>,
    /// The axes, in the order of the array.
    pub(crate) axes: Vec<Axis>,
    /// The transform to coordinates, if it is more than a step along each axis.
    pub(crate) transform: Option<Transform>,
    /// A value is a stored number times `scale` plus `offset`.
    pub(crate) scale: Option<f64>,
    pub(crate) offset: Option<f64>,
    /// Whether the NIfTI header beside the array says where it is.
    pub(crate) has_nifti_header: bool,
    /// Whether only the header of NIfTI-Zarr has scale and offset.
    pub(crate) is_packed_by_header: bool,
    /// The units of the values.
    pub(crate) units: Option<String>,
    /// The number that marks missing values, with the sign that `_Unsigned` gives to the elements.
    pub(crate) missing: Option<Value>,
    /// The channels of the image.
    pub(crate) channels: Vec<Channel>,
    /// Coordinate arrays of axes.
    pub(crate) coordinates: Coordinates,
    /// The name of the coordinate reference system.
    pub(crate) reference_system: Option<String>,
    /// Whether no transform and no coordinates place the array in the reference system.
    pub(crate) lacks_transform: bool,
}

/// The axes of an array, for formats that have coordinate arrays as they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeclaredAxes {
    /// The axes in the order of the array, with what attributes and headers say. Without coordinate arrays.
    pub(crate) axes: Vec<Axis>,
    /// The channels of the image.
    pub(crate) channels: Vec<Channel>,
    /// The name of the image.
    pub(crate) image_name: Option<String>,
    /// Whether the coordinates are turned or sheared against the axes: spacings are not steps along coordinates.
    pub(crate) is_turned: bool,
    /// What was not understood.
    pub(crate) notes: Vec<String>,
}

impl DeclaredAxes {
    /// Reads the axes of an array, named as its dimensions, if these have names. One whose elements are no numbers has only the names of its dimensions.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of(node: &ViewNode, nodes: &dyn NodeResolver) -> Result<Self, ContentError> {
        let Some(view) = node.array_view() else {
            return Ok(Self::of_dimensions(node));
        };
        let groups = Groups::above(&view, nodes, &mut Notes::default())?;
        let context = Context::new(&view, nodes, &groups);
        let mut notes = Notes::default();
        let (mut found, is_image) = Description::placed(&context, &mut notes)?;
        if !is_image && geozarr::has_transform(&context) {
            let mut raster = Description {
                axes: found.axes.clone(),
                ..Description::default()
            };
            let mut of_raster = Notes::default();
            raster.add_transform(&context, &mut of_raster)?;
            // With a system, the coordinates are those of the grid of the array.
            if raster.reference_system.is_none() {
                found.axes = raster.axes;
                of_raster.0.into_iter().for_each(|note| notes.add(note));
            }
        }
        let names = &view.array.dimension_names;
        if names.iter().any(Option::is_some) {
            // Coordinate arrays have the names of dimensions.
            let named = found.axes.iter_mut().zip(names);
            named.for_each(|(axis, name)| axis.name.clone_from(name));
        }
        Ok(Self {
            axes: found.axes,
            channels: found.channels,
            image_name: found.name,
            is_turned: found.transform.is_some(),
            notes: notes.0,
        })
    }

    /// Returns axes with the names of the dimensions of an array.
    pub(crate) fn of_dimensions(node: &ViewNode) -> Self {
        let array = node.metadata().as_array();
        let names = array.map(|array| array.dimension_names.clone());
        let named = |name: Option<String>| Axis {
            name,
            ..Axis::default()
        };
        Self {
            axes: names.into_iter().flatten().map(named).collect(),
            ..Self::default()
        }
    }
}

/// Whether axes have coordinate arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Coordinates {
    /// Whether an axis has evenly spaced coordinates, or the raster a transform.
    pub(crate) are_even: bool,
    /// Whether an axis has other coordinates.
    pub(crate) are_uneven: bool,
}

impl Description {
    /// Reads the description of an array of numbers.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of(
        view: &ArrayView<'_>,
        nodes: &dyn NodeResolver,
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let groups = Groups::above(view, nodes, notes)?;
        let context = Context::new(view, nodes, &groups);
        let mut found = Self::of_axes(&context, notes)?;
        (found.offset, found.scale) = packing(&context, notes)?;
        if let Some((own, 1)) = view.number() {
            let kind = cf::kind_of_values(view.array, own.kind);
            let mut note = |why| notes.add(why);
            let missing = MissingValues::of(view.node, own, nodes, &mut note)?.one(&mut note);
            found.missing = missing.map(|value| reinterpret(own, Number { kind, ..own }, value));
        }
        found.units = samples::units(&context, notes);
        Ok(found)
    }

    /// Reads axes, transform, channels and name, also from coordinates.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of_axes(context: &Context<'_>, notes: &mut Notes) -> Result<Self, ContentError> {
        let (mut found, is_image) = Self::placed(context, notes)?;
        if found.axes.iter().all(|axis| axis.spacing.is_none()) && !is_image {
            found.add_coordinates(context, notes)?;
            found.add_transform(context, notes)?;
        }
        Ok(found)
    }

    /// Returns what [`Description::declared`] returns, with axes and transform as the NIfTI header beside a level has
    /// them.
    fn placed(context: &Context<'_>, notes: &mut Notes) -> Result<(Self, bool), ContentError> {
        let (mut found, is_image) = Self::declared(context, notes);
        if is_image {
            found.add_nifti_header(context, notes)?;
        }
        Ok((found, is_image))
    }

    /// Returns axes, transform, channels and name as the attributes of the array and its groups declare them, and
    /// whether the array is a level of an image of OME-Zarr.
    pub(crate) fn declared(context: &Context<'_>, notes: &mut Notes) -> (Self, bool) {
        let view = context.view;
        let rank = view.shape().len();
        let image = ome_image(context).zip(context.level_entry());
        let level = image.map(|(image, entry)| ome::level(image, entry, rank));
        let level = level.unwrap_or_default();
        level.notes.into_iter().for_each(|note| notes.add(note));
        let is_image = !level.axes.is_empty();
        let mut found = Self {
            name: image
                .and_then(|(image, _)| ome::name(image))
                .map(str::to_owned),
            channels: context
                .pyramid()
                .filter(|_| image.is_some())
                .map(ome::channels)
                .unwrap_or_default(),
            axes: level.axes,
            transform: level.transform,
            ..Self::default()
        };
        if !is_image {
            found.axes = axes_of_n5(context, rank).unwrap_or_else(|| vec![Axis::default(); rank]);
        }
        for (axis, name) in found.axes.iter_mut().zip(&view.array.dimension_names) {
            axis.name = axis.name.take().or_else(|| name.clone());
        }
        for axis in &mut found.axes {
            if let (AxisKind::Unknown, Some(name)) = (axis.kind, &axis.name) {
                axis.kind = AxisKind::of_name(name);
            }
        }
        (found, is_image)
    }

    /// Adds what the NIfTI header beside a level of an image says.
    fn add_nifti_header(
        &mut self,
        context: &Context<'_>,
        notes: &mut Notes,
    ) -> Result<(), ContentError> {
        match nifti_header::level_by_header(context)? {
            None => {}
            Some(Ok((header, level))) => {
                (self.axes, self.transform) = (level.axes, level.transform);
                self.has_nifti_header = true;
                self.is_packed_by_header = header.packing.is_some() && !is_packed_by_cf(context);
            }
            Some(Err(why)) => {
                notes.add(format!("the header in the array nifti is {why}: left out"));
            }
        }
        Ok(())
    }

    /// Adds evenly spaced coordinates.
    fn add_coordinates(
        &mut self,
        context: &Context<'_>,
        notes: &mut Notes,
    ) -> Result<(), ContentError> {
        for (axis, length) in self.axes.iter_mut().zip(context.view.shape()) {
            let found = CoordinateAxis::of(context, axis.name.as_deref(), *length, notes)?;
            if let Steps::Regular(first, step) = found.steps {
                axis.spacing = Some(step).filter(|step| *step != 0.0);
                axis.origin = Some(first);
                axis.unit = found.units;
                self.coordinates.are_even = true;
            }
            self.coordinates.are_uneven |= found.steps == Steps::Irregular;
        }
        Ok(())
    }

    /// Adds the steps of the raster's transform to axes without coordinates.
    fn add_transform(
        &mut self,
        context: &Context<'_>,
        notes: &mut Notes,
    ) -> Result<(), ContentError> {
        // Its notes are those of the files that are rasters.
        let mut of_rasters = Notes::default();
        let metadata = RasterMetadata::of_planes(context.view, context.nodes, &mut of_rasters)?;
        let Some(metadata) = metadata else {
            return Ok(());
        };
        let crs = metadata.georef.crs.as_ref();
        self.reference_system = crs.map(Crs::name);
        if metadata.georef.transform.is_none() && crs.is_none() && self.axes.len() > 1 {
            let declared = declared_crs(context, &metadata.raster)?;
            self.lacks_transform = declared.is_some();
            self.reference_system = declared.as_ref().map(Crs::name);
        }
        let [.., down, across] = &mut self.axes[..] else {
            return Ok(());
        };
        if down.spacing.is_some() || across.spacing.is_some() {
            return Ok(());
        }
        if let Some([_, b, _, d, ..]) = metadata.georef.transform
            && (b != 0.0 || d != 0.0)
        {
            notes.add("the transform of the raster turns it: only GeoTIFF and .vrt have a place");
        }
        let is_side = |name: &Option<String>| name.as_deref().and_then(direction_of).is_some();
        let is_named = is_side(&metadata.raster.down) || is_side(&metadata.raster.across);
        if let Some([a, 0.0, c, 0.0, e, f]) = metadata.georef.corner_transform()
            && (is_named || crs.is_some())
        {
            (across.spacing, across.origin) = (Some(a), Some(c + a / 2.0));
            (down.spacing, down.origin) = (Some(e), Some(f + e / 2.0));
            self.coordinates.are_even = true;
        }
        Ok(())
    }

    /// Returns the fields that are known.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let any = |is_known: &dyn Fn(&Axis) -> bool| self.axes.iter().any(is_known);
        let is_declared = !self.coordinates.are_even;
        let any_channel = |is_known: &dyn Fn(&Channel) -> bool| self.channels.iter().any(is_known);
        [
            (self.name.is_some(), Field::ImageName),
            (any(&|axis| axis.name.is_some()), Field::AxisNames),
            (
                is_declared && any(&|axis| axis.spacing.is_some()),
                Field::Spacing,
            ),
            (
                is_declared && any(&|axis| axis.origin.is_some_and(|origin| origin != 0.0)),
                Field::Origin,
            ),
            (
                is_declared && any(&|axis| axis.unit.is_some()),
                Field::AxisUnits,
            ),
            (
                any(&|axis| axis.orientation.is_some())
                    || self.transform.as_ref().is_some_and(Transform::is_oriented),
                Field::Orientation,
            ),
            (self.transform.is_some(), Field::Transform),
            (self.coordinates.are_even, Field::Coordinates),
            (self.coordinates.are_uneven, Field::UnevenCoordinates),
            (self.missing.is_some(), Field::Missing),
            (
                !self.is_packed_by_header && (self.scale.is_some() || self.offset.is_some()),
                Field::Packing,
            ),
            (self.is_packed_by_header, Field::HeaderPacking),
            (self.units.is_some(), Field::ValueUnits),
            (
                any_channel(&|channel| channel.name.is_some()),
                Field::ChannelNames,
            ),
            (
                any_channel(&|channel| channel.color.is_some()),
                Field::ChannelColors,
            ),
            (
                self.reference_system.is_some() && !self.lacks_transform,
                Field::ReferenceSystem,
            ),
            (self.lacks_transform, Field::SystemWithoutTransform),
        ]
        .into_iter()
        .filter_map(|(is_known, field)| is_known.then_some(field))
        .collect()
    }
}

impl Description {
    /// Returns the description as JSON, without what is not known.
    pub(crate) fn json(&self) -> Map<String, Json> {
        let mut members = Map::new();
        let mut set = |name: &str, value: Json| {
            let is_empty = match &value {
                Json::Null => true,
                Json::Array(items) => items.is_empty(),
                Json::Object(members) => members.is_empty(),
                _ => false,
            };
            if !is_empty {
                members.insert(name.to_owned(), value);
            }
        };
        let is_known = |axis: &Axis| *axis != Axis::default();
        if self.axes.iter().any(is_known) {
            set("axes", self.axes.iter().map(axis_json).collect());
        }
        if let Some(transform) = &self.transform {
            let rows = (0..transform.affine.outputs()).map(|row| json!(transform.affine.row(row)));
            set("transform", rows.collect());
        }
        let values = [
            ("missing", self.missing.map(value_json)),
            ("scale", self.scale.map(Json::from)),
            ("offset", self.offset.map(Json::from)),
            ("unit", self.units.clone().map(Json::from)),
        ];
        let values = values.into_iter();
        let values = values.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        set("values", Json::Object(values.collect()));
        set("image", json!(self.name));
        set("channels", self.channels.iter().map(channel_json).collect());
        set("reference_system", json!(self.reference_system));
        if self.lacks_transform {
            set("has_transform", json!(false));
        }
        members
    }
}

/// Returns the members that are known.
fn members<const N: usize>(values: [(&str, Json); N]) -> Json {
    let known = values.into_iter().filter(|(_, value)| !value.is_null());
    Json::Object(
        known
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

fn axis_json(axis: &Axis) -> Json {
    members([
        ("name", json!(axis.name)),
        ("kind", json!(axis.kind.name())),
        ("spacing", json!(axis.spacing)),
        ("origin", json!(axis.origin)),
        ("unit", json!(axis.unit)),
        (
            "orientation",
            json!(axis.orientation.map(Orientation::name)),
        ),
    ])
}

fn channel_json(channel: &Channel) -> Json {
    let color = channel
        .color
        .map(|[r, g, b]| format!("{r:02X}{g:02X}{b:02X}"));
    members([("name", json!(channel.name)), ("color", json!(color))])
}

/// Returns a number of JSON, or the text of a number that JSON lacks.
fn value_json(value: Value) -> Json {
    let text = shown(value);
    serde_json::from_str(&text).unwrap_or(Json::String(text))
}

/// Returns the axes by the attributes of N5 of the array and its group.
fn axes_of_n5(context: &Context<'_>, rank: usize) -> Option<Vec<Axis>> {
    let own = context.view.array.attributes.as_ref().ok()?;
    let group = context.above().next().map(|(_, members)| members);
    let is_n5 = context.view.array.format == ZarrFormat::N5;
    n5::axes(own, group, rank, is_n5)
}
