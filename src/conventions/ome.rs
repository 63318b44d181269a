//! OME-Zarr (ngff.openmicroscopy.org) 0.1 to 0.6rc0: axes, transforms and channels of an image.
//!
//! | version | axes | transform of a level |
//! |---|---|---|
//! | 0.1, 0.2 | t, c, z, y, x | none |
//! | 0.3 | names | none |
//! | 0.4, 0.5 | `axes` | a scale and a translation, then those of the image |
//! | 0.6 | the coordinate system that is the output of the levels ("intrinsic") | one scale, or a sequence |
//!
//! The transforms of an image that lead to another coordinate system (0.6, and the draft that SpatialData
//! writes into 0.4) are not applied: the intrinsic system is "the image in its native physical coordinates"
//! (0.6, "multiscales" metadata).

use serde_json::{Map, Value as Json};

use super::affine::{Affine, Step};
use super::description::{Axis, AxisKind, Channel, Orientation, Transform};
use super::georef::context::{Levels, MAX_LEVELS, listed_levels, some};
use super::georef::scale::Vectors;

/// The colour of a channel, as six hexadecimal digits.
pub const COLOR: &str = "color";
/// The anatomical orientation of an axis (RFC-4).
pub const ORIENTATION: &str = "orientation";

/// The maximum number of axes of an image, of nested transforms, and of channels.
const MAX_AXES: usize = 32;
const MAX_DEPTH: usize = 8;
const MAX_CHANNELS: usize = 4096;

/// A level of an image.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Level {
    /// The axes of the array; empty if the image declares none for an array of this rank.
    pub axes: Vec<Axis>,
    /// The transform, if it turns or shears.
    pub transform: Option<Transform>,
    /// What is declared and not understood, or not used.
    pub notes: Vec<String>,
}

/// Returns the list of images of a group, the member `multiscales` of all versions.
pub fn images(attributes: &Map<String, Json>) -> Option<&Json> {
    let nested = attributes.get("ome").and_then(|ome| ome.get("multiscales"));
    attributes
        .get("multiscales")
        .or(nested)
        .filter(|images| images.is_array())
}

/// Returns the pyramids of a group: its images, whose levels are arrays, and those of ndpyramid, whose levels are
/// groups.
pub(crate) fn pyramids(attributes: &Map<String, Json>) -> Vec<Levels<'_>> {
    let images = images(attributes).and_then(Json::as_array);
    let images = images.into_iter().flatten().take(MAX_LEVELS);
    let datasets = images.filter_map(|image| image.get("datasets"));
    datasets
        .map(|levels| listed_levels(levels, "path"))
        .collect()
}

/// Returns the image of a group that has a level.
pub fn image_with<'a>(
    attributes: &'a Map<String, Json>,
    level: &Map<String, Json>,
) -> Option<&'a Map<String, Json>> {
    let has_level = |image: &&Json| {
        let levels = image.get("datasets").and_then(Json::as_array);
        levels.is_some_and(|levels| levels.iter().any(|other| other.as_object() == Some(level)))
    };
    images(attributes)?
        .as_array()?
        .iter()
        .find(has_level)?
        .as_object()
}

/// Returns the path of the finest level of the first image of a group.
pub fn finest_path(attributes: &Map<String, Json>) -> Option<&str> {
    let image = images(attributes)?.get(0)?;
    image.get("datasets")?.get(0)?.get("path")?.as_str()
}

/// Returns the entry of the finest level of an image.
pub fn finest_entry(image: &Map<String, Json>) -> Option<&Map<String, Json>> {
    image.get("datasets")?.get(0)?.as_object()
}

/// Returns whether an image declares axes, as all since version 0.3 do.
pub fn has_axes(image: &Map<String, Json>) -> bool {
    image.contains_key("axes") || image.contains_key("coordinateSystems")
}

/// Returns the name of an image.
pub fn name(image: &Map<String, Json>) -> Option<&str> {
    image.get("name")?.as_str().filter(|name| !name.is_empty())
}

/// Reads the axes and the transform of a level, the member `entry` of the `datasets` of an image.
pub fn level(image: &Map<String, Json>, entry: &Map<String, Json>, rank: usize) -> Level {
    let mut level = Level::default();
    let axes = match coordinate_system(image, entry, &mut level.notes) {
        Some(axes) => parse_axes(axes, &mut level.notes),
        None => default_axes(rank),
    };
    if axes.len() != rank {
        if !axes.is_empty() {
            level.notes.push(format!(
                "the image has {} axes and the array {rank}: the axes of OME-Zarr are left out",
                axes.len()
            ));
        }
        return level;
    }
    level.axes = axes;
    match transform_of(image, entry, rank) {
        Ok(Some(affine)) => level.apply(affine, rank),
        Ok(None) => {}
        Err(reason) => level
            .notes
            .push(format!("spacing and origin are left out: {reason}")),
    }
    level.notes.extend(other_systems(image));
    level
}

/// Returns a note for each coordinate system to which transforms of an image lead that has no `coordinateSystems`:
/// the form that SpatialData writes into 0.4 and 0.5.
fn other_systems(image: &Map<String, Json>) -> impl Iterator<Item = String> {
    let whole = image.get("coordinateTransformations");
    let is_draft = !image.contains_key("coordinateSystems");
    let whole = whole.and_then(Json::as_array).filter(|_| is_draft);
    let outputs = whole.into_iter().flatten().take(MAX_AXES);
    let named = outputs.filter_map(|step| system_name(step.get("output")?));
    named.map(|name| {
        format!(
            "the transform to the coordinate system {} is left out: files use the system of the levels",
            short(name)
        )
    })
}

impl Level {
    /// Sets the spacing and the origin of each axis, in the order of the array.
    pub(super) fn apply(&mut self, affine: Affine, rank: usize) {
        let coordinates = std::mem::take(&mut self.axes);
        self.transform = None;
        let of_axis = |step: &Step| {
            let axis = coordinates.get(step.axis)?.clone();
            Some(Axis {
                spacing: Some(step.step),
                origin: Some(step.first),
                ..axis
            })
        };
        let steps = affine.steps();
        let axes: Option<Vec<Axis>> = steps.and_then(|steps| steps.iter().map(of_axis).collect());
        if let Some(axes) = axes.filter(|axes| axes.len() == rank) {
            self.axes = axes;
            return;
        }
        self.axes = coordinates.clone();
        for (place, axis) in self.axes.iter_mut().enumerate() {
            axis.spacing = length_of_column(&affine, &coordinates, place);
            // The coordinates have directions, and an axis of the array runs along several of them.
            axis.orientation = None;
        }
        self.transform = Some(Transform {
            affine,
            coordinates,
        });
    }
}

/// Returns the distance in space of elements that are adjacent along an axis; `None` if it is zero.
fn length_of_column(affine: &Affine, coordinates: &[Axis], place: usize) -> Option<f64> {
    let kind = coordinates.get(place)?.kind;
    let same = coordinates
        .iter()
        .enumerate()
        .filter(|(_, axis)| axis.kind == kind);
    let squares = same.map(|(row, _)| Some(affine.row(row)?.get(place)?.powi(2)));
    let length = squares.sum::<Option<f64>>()?.sqrt();
    (length.is_finite() && length > 0.0).then_some(length)
}

/// Returns the `axes` of an image: of the coordinate system of its levels since version 0.6.
fn coordinate_system<'a>(
    image: &'a Map<String, Json>,
    entry: &Map<String, Json>,
    notes: &mut Vec<String>,
) -> Option<&'a Json> {
    let Some(systems) = image.get("coordinateSystems").and_then(Json::as_array) else {
        return image.get("axes");
    };
    let output = entry
        .get("coordinateTransformations")
        .and_then(|steps| steps.get(0)?.get("output"));
    let intrinsic = output.and_then(system_name);
    let name = |system: &Json| system.get("name").and_then(Json::as_str).map(str::to_owned);
    let is_intrinsic = |system: &&Json| intrinsic.is_some() && name(system).as_deref() == intrinsic;
    let found = systems.iter().find(is_intrinsic);
    // Levels without an output cannot mean another system than the only one.
    let found = found.or_else(|| systems.first().filter(|_| systems.len() == 1));
    let Some(found) = found else {
        notes.push(
            "the coordinate system of the level is not among those of the image: axes are left out"
                .into(),
        );
        return Some(&Json::Null);
    };
    for other in systems
        .iter()
        .filter(|system| !std::ptr::eq(*system, found))
    {
        if let Some(name) = name(other) {
            notes.push(format!(
                "the coordinate system {} is left out: files use that of the levels",
                short(&name)
            ));
        }
    }
    found.get("axes")
}

/// Returns the name of a system, which is a text or an object with a name.
fn system_name(reference: &Json) -> Option<&str> {
    reference
        .as_str()
        .or_else(|| reference.get("name")?.as_str())
}

/// Returns the axes of versions that declare none: always five.
fn default_axes(rank: usize) -> Vec<Axis> {
    let names = ["t", "c", "z", "y", "x"];
    let axis = |name: &str| Axis {
        name: Some(name.to_owned()),
        kind: AxisKind::of_name(name),
        ..Axis::default()
    };
    match rank == names.len() {
        true => names.map(axis).into(),
        false => Vec::new(),
    }
}

fn parse_axes(axes: &Json, notes: &mut Vec<String>) -> Vec<Axis> {
    let Some(axes) = axes.as_array().filter(|axes| axes.len() <= MAX_AXES) else {
        return Vec::new();
    };
    axes.iter().map(|axis| parse_axis(axis, notes)).collect()
}

fn parse_axis(axis: &Json, notes: &mut Vec<String>) -> Axis {
    let text = |member: &str| {
        axis.get(member)
            .and_then(Json::as_str)
            .filter(|text| !text.is_empty())
    };
    // Version 0.3 has only names.
    let name = axis.as_str().or_else(|| text("name"));
    let kind = text("type").and_then(AxisKind::of_ome);
    let shown = short(name.unwrap_or("without a name"));
    let found = Axis {
        name: name.map(str::to_owned),
        kind: kind
            .or_else(|| name.map(AxisKind::of_name))
            .unwrap_or_default(),
        unit: text("unit").map(str::to_owned),
        orientation: axis.get(ORIENTATION).and_then(orientation),
        ..Axis::default()
    };
    let declared = axis.get(ORIENTATION).filter(|declared| !declared.is_null());
    if let Some(declared) = declared.filter(|_| found.orientation.is_none()) {
        let value = declared.get("value").unwrap_or(declared);
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        notes.push(format!(
            "the orientation {} of the axis {shown} is not known: left out",
            short(&value)
        ));
    }
    let is_known = match found.kind {
        AxisKind::Time => found.seconds().is_some(),
        AxisKind::Space => found.metres().is_some(),
        AxisKind::Unknown | AxisKind::Channel => true,
    };
    if let Some(unit) = found.unit.as_deref().filter(|_| !is_known) {
        notes.push(format!(
            "the unit {} of the axis {shown} is not known",
            short(unit)
        ));
    }
    found
}

/// Reads the orientation of an axis (RFC-4): an object of the type `anatomical`.
fn orientation(declared: &Json) -> Option<Orientation> {
    let kind = declared.get("type").and_then(Json::as_str);
    let value = declared.get("value").unwrap_or(declared).as_str()?;
    kind.is_none_or(|kind| kind == "anatomical")
        .then(|| Orientation::of_value(value))?
}

/// Returns the transform of a level to the coordinates of the image; `None` without one.
///
/// # Errors
/// Returns which transform is not understood.
fn transform_of(
    image: &Map<String, Json>,
    entry: &Map<String, Json>,
    rank: usize,
) -> Result<Option<Affine>, String> {
    let Some(own) = entry
        .get("coordinateTransformations")
        .filter(|own| !own.is_null())
    else {
        return Ok(None);
    };
    let own = sequence(own, rank, 0)?;
    let whole = image
        .get("coordinateTransformations")
        .and_then(Json::as_array);
    let is_applied =
        |step: &&Json| step.get("output").is_none() && !image.contains_key("coordinateSystems");
    let whole: Vec<Json> = whole
        .into_iter()
        .flatten()
        .filter(is_applied)
        .cloned()
        .collect();
    let whole = sequence(&Json::Array(whole), own.outputs(), 0)?;
    let found = own
        .then(&whole)
        .ok_or("the transforms of level and image do not fit")?;
    match found.outputs() == rank {
        true => Ok(Some(found)),
        false => Err("the transform of the level has another number of axes".into()),
    }
}

/// Returns the transform that applies a list of transforms in order.
///
/// # Errors
/// Returns which transform is not understood.
pub fn sequence(steps: &Json, rank: usize, depth: usize) -> Result<Affine, String> {
    let steps = steps
        .as_array()
        .ok_or("coordinateTransformations is no list")?;
    let start = Affine::identity(rank).ok_or("too many axes")?;
    steps.iter().try_fold(start, |before, step| {
        let step = transform(step, before.outputs(), depth)?;
        before
            .then(&step)
            .ok_or_else(|| "a transform has another number of axes".to_owned())
    })
}

/// Reads one transform of `rank` coordinates (0.6, "Transformation types").
///
/// # Errors
/// Returns which transform is not understood.
fn transform(step: &Json, rank: usize, depth: usize) -> Result<Affine, String> {
    if depth > MAX_DEPTH {
        return Err("transforms are nested too deeply".into());
    }
    let kind = step
        .get("type")
        .and_then(Json::as_str)
        .ok_or("a transform has no type")?;
    let wrong = || match step.get("path") {
        Some(_) => format!("the transform {} is stored in an array", short(kind)),
        None => format!("the transform {} is not known", short(kind)),
    };
    let member = |name: &str| step.get(name).ok_or_else(wrong);
    let found = match kind {
        "identity" => Affine::identity(rank),
        "scale" => Affine::scale(&vector(member("scale")?).ok_or_else(wrong)?),
        "translation" => Affine::translation(&vector(member("translation")?).ok_or_else(wrong)?),
        "mapAxis" => indices(member("mapAxis")?).and_then(|axes| Affine::permutation(&axes)),
        "affine" => matrix(member("affine")?).and_then(|rows| Affine::of_rows(rows, rank)),
        "rotation" => rotation(member("rotation")?, rank),
        "sequence" => Some(sequence(member("transformations")?, rank, depth + 1)?),
        "bijection" => Some(transform(member("forward")?, rank, depth + 1)?),
        "byDimension" => Some(by_dimension(member("transformations")?, rank, depth + 1)?),
        _ => None,
    };
    found
        .filter(|found| found.inputs() == rank)
        .ok_or_else(wrong)
}

fn rotation(rows: &Json, rank: usize) -> Option<Affine> {
    let mut rows = matrix(rows)?;
    rows.iter_mut().for_each(|row| row.push(0.0));
    Affine::of_rows(rows, rank)
}

/// Reads transforms of some axes each. Coordinates that none of them gives are the indices.
fn by_dimension(parts: &Json, rank: usize, depth: usize) -> Result<Affine, String> {
    let wrong = || "the transform byDimension is not known".to_owned();
    let mut rows: Vec<Option<Vec<f64>>> = vec![None; rank];
    for part in parts.as_array().ok_or_else(wrong)? {
        let axes = |name: &str| part.get(name).and_then(indices).ok_or_else(wrong);
        let (inputs, outputs) = (axes("inputAxes")?, axes("outputAxes")?);
        // Drafts before 0.6rc0 have the members of the transform here.
        let inner = transform(
            part.get("transformation").unwrap_or(part),
            inputs.len(),
            depth,
        )?;
        for (place, output) in outputs.iter().enumerate() {
            let own = inner.row(place).ok_or_else(wrong)?;
            let mut row = vec![0.0; rank + 1];
            for (factor, input) in own.iter().zip(inputs.iter().chain([&rank])) {
                *row.get_mut(*input).ok_or_else(wrong)? = *factor;
            }
            let slot = rows
                .get_mut(*output)
                .filter(|slot| slot.is_none())
                .ok_or_else(wrong)?;
            *slot = Some(row);
        }
    }
    let identity = Affine::identity(rank).ok_or_else(wrong)?;
    let rows = rows
        .into_iter()
        .enumerate()
        .map(|(place, row)| row.or_else(|| identity.row(place).map(<[f64]>::to_vec)));
    Affine::of_rows(rows.collect::<Option<_>>().ok_or_else(wrong)?, rank).ok_or_else(wrong)
}

/// Returns a list of finite numbers.
pub fn vector(value: &Json) -> Option<Vec<f64>> {
    let numbers = value
        .as_array()
        .filter(|numbers| numbers.len() <= MAX_AXES)?;
    numbers
        .iter()
        .map(|number| number.as_f64().filter(|number| number.is_finite()))
        .collect()
}

/// Returns the scales and translations of a level in its entry; `None` without transforms.
///
/// # Errors
/// Returns why they are not known.
pub(crate) fn level_scales(entry: &Map<String, Json>) -> Result<Option<Vectors>, &'static str> {
    let steps = some(entry, "coordinateTransformations");
    let found =
        steps.map(|steps| scales(steps).ok_or("its coordinateTransformations are not known"));
    found.transpose()
}

/// Returns the name of an axis of an image.
pub(crate) fn axis_name(image: &Map<String, Json>, place: usize) -> Option<&str> {
    let axis = image.get("axes")?.get(place)?;
    axis.get("name").unwrap_or(axis).as_str()
}

/// Returns the scale and the translation of a list of transforms that has at least one of them.
///
/// `None` if a transform is not understood, turns, or has a scale that is not positive.
fn scales(steps: &Json) -> Option<(Vec<f64>, Vec<f64>)> {
    let affine = sequence(steps, rank_of(steps, 0)?, 0).ok()?;
    let steps = affine.steps()?;
    let is_in_order = |(place, step): (usize, &Step)| step.axis == place && step.step > 0.0;
    let are_scales = steps.iter().enumerate().all(is_in_order);
    are_scales.then(|| steps.iter().map(|step| (step.step, step.first)).unzip())
}

/// Returns the number of axes of the first scale or translation of a list of transforms.
fn rank_of(steps: &Json, depth: usize) -> Option<usize> {
    let of_step = |step: &Json| {
        let own = step.get("scale").or_else(|| step.get("translation"));
        let own = own.and_then(Json::as_array).map(Vec::len);
        let nested = |depth: usize| rank_of(step.get("transformations")?, depth + 1);
        own.or_else(|| nested(Some(depth).filter(|depth| *depth < MAX_DEPTH)?))
    };
    steps.as_array()?.iter().find_map(of_step)
}

fn matrix(value: &Json) -> Option<Vec<Vec<f64>>> {
    let rows = value.as_array().filter(|rows| rows.len() <= MAX_AXES)?;
    rows.iter().map(vector).collect()
}

fn indices(value: &Json) -> Option<Vec<usize>> {
    let numbers = value
        .as_array()
        .filter(|numbers| numbers.len() <= MAX_AXES)?;
    numbers
        .iter()
        .map(|number| usize::try_from(number.as_u64()?).ok())
        .collect()
}

/// Returns the channels of an image: the member `omero` of its group (0.4 to 0.6, "omero" metadata).
pub fn channels(attributes: &Map<String, Json>) -> Vec<Channel> {
    let nested = attributes.get("ome").and_then(|ome| ome.get("omero"));
    let channels = attributes
        .get("omero")
        .or(nested)
        .and_then(|omero| omero.get("channels"));
    let channels = channels.and_then(Json::as_array);
    channels
        .into_iter()
        .flatten()
        .take(MAX_CHANNELS)
        .map(channel)
        .collect()
}

fn channel(channel: &Json) -> Channel {
    let text = |member: &str| channel.get(member).and_then(Json::as_str);
    let color = text(COLOR).map(|color| color.trim_start_matches('#'));
    let color =
        color.filter(|color| color.len() == 6 && color.bytes().all(|c| c.is_ascii_hexdigit()));
    let [_, red, green, blue] = color
        .and_then(|color| u32::from_str_radix(color, 16).ok())
        .unwrap_or_default()
        .to_be_bytes();
    Channel {
        name: text("label")
            .filter(|label| !label.is_empty())
            .map(str::to_owned),
        color: color.map(|_| [red, green, blue]),
    }
}

fn short(name: &str) -> String {
    name.escape_debug().take(60).collect()
}

#[cfg(test)]
mod tests;
