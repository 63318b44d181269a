//! Scales and translations of OME-NGFF 0.4 and 0.5 images.

use serde_json::{Map, Value as Json};

use super::context::{Context, number};

/// An axis of an OME-NGFF image.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::view) struct OmeAxis {
    pub(in crate::view) scale: f64,
    /// The coordinate of the centre of the first element.
    pub(in crate::view) start: f64,
    pub(in crate::view) unit: Option<String>,
    pub(in crate::view) name: Option<String>,
    /// The `type` of the axis: `space`, `time`, `channel` or another.
    pub(in crate::view) kind: Option<String>,
}

/// Scales and translations along all axes.
pub(in crate::view) type Vectors = (Vec<f64>, Vec<f64>);

pub(in crate::view) fn vector(value: &Json) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(number).collect()
}

pub(in crate::view) fn are_scales(scale: &[f64]) -> bool {
    scale.iter().all(|scale| *scale > 0.0)
}

/// Reads the `coordinateTransformations` of a dataset: a scale, then a translation of the centre of the first
/// pixel.
pub(in crate::view) fn of_ome(steps: &Json) -> Option<Vectors> {
    let (mut scale, mut start) = (None, None);
    for step in steps.as_array()? {
        match step.get("type")?.as_str()? {
            "identity" => {}
            "scale" if scale.is_none() && start.is_none() => {
                scale = Some(vector(step.get("scale")?)?)
            }
            "translation" if start.is_none() => start = Some(vector(step.get("translation")?)?),
            _ => return None,
        }
    }
    let scale = scale?;
    let start = start.unwrap_or_else(|| vec![0.0; scale.len()]);
    (start.len() == scale.len() && are_scales(&scale)).then_some((scale, start))
}

/// Returns the axes of an array that is a level of an OME-NGFF image; `None` for other arrays.
pub(in crate::view) fn ome_axes(context: &Context<'_>, rank: usize) -> Option<Vec<OmeAxis>> {
    let entry = context.level_entry()?;
    let (mut scale, mut start) = of_ome(entry.get("coordinateTransformations")?)?;
    let image = ome_image(context)?;
    // The transformations of the image apply after those of the level.
    if let Some(steps) = image.get("coordinateTransformations") {
        let (whole, shift) = of_ome(steps)?;
        if whole.len() != scale.len() {
            return None;
        }
        for (((scale, start), whole), shift) in
            scale.iter_mut().zip(&mut start).zip(whole).zip(shift)
        {
            *scale *= whole;
            *start = *start * whole + shift;
        }
    }
    if scale.len() != rank {
        return None;
    }
    let axes = image.get("axes").and_then(Json::as_array);
    let text = |place: usize, name: &str| {
        let text = axes?.get(place)?.get(name)?.as_str()?;
        Some(text.to_owned())
    };
    let axes = scale.into_iter().zip(start).enumerate();
    Some(
        axes.map(|(place, (scale, start))| OmeAxis {
            scale,
            start,
            unit: text(place, "unit"),
            name: text(place, "name"),
            kind: text(place, "type"),
        })
        .collect(),
    )
}

/// Returns the image that contains an array as a level: a member of the `multiscales` of a group.
pub(in crate::view) fn ome_image<'a>(context: &Context<'a>) -> Option<&'a Map<String, Json>> {
    image_with(context.pyramid()?, context.level_entry()?)
}

/// Returns the image of a list that contains a level.
fn image_with<'a>(
    attributes: &'a Map<String, Json>,
    level: &Map<String, Json>,
) -> Option<&'a Map<String, Json>> {
    let ome = attributes.get("ome").and_then(|ome| ome.get("multiscales"));
    let images = attributes.get("multiscales").or(ome)?.as_array()?;
    let has_level = |image: &&Json| {
        let levels = image.get("datasets").and_then(Json::as_array);
        levels.is_some_and(|levels| levels.iter().any(|other| other.as_object() == Some(level)))
    };
    images.iter().find(has_level)?.as_object()
}
