//! The coordinate reference systems of the EPSG dataset that a GeoKey can express, with their WKT.
//!
//! `scripts/gen-epsg` generates `epsg.zst`. All numbers are little-endian. The file has the number of blocks
//! (`u16`); for each block its last code (`u16`) and its end (`u32`, from the end of this table); then the
//! blocks. A block is a zstd frame with a line per code, in ascending order. Tab-separated fields: code, kind
//! (`G` or `P`), unit, WKT that GDAL reads, WKT of ESRI (or nothing).

use std::io::Read as _;
use std::ops::RangeInclusive;

/// Version 12.029 of the dataset.
static TABLE: &[u8] = include_bytes!("epsg.zst");

/// The maximum size of a decompressed block.
const MAX_BLOCK_BYTES: u64 = 4 << 20;

/// The kind of a coordinate reference system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrsKind {
    /// Longitudes and latitudes.
    Geographic,
    /// Eastings and northings.
    Projected,
    /// Longitudes and latitudes of a rotated pole.
    RotatedPole,
}

/// The unit of the axes of a projected system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Metre,
    /// International foot.
    Foot,
    UsSurveyFoot,
    /// Another unit.
    Other,
}

/// A system of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: CrsKind,
    /// The unit of a projected system.
    pub(crate) unit: Unit,
    /// WKT 1 of GDAL; WKT 2 if WKT 1 cannot express the system.
    pub(crate) wkt: String,
    /// WKT of ESRI and ENVI.
    pub(crate) wkt_esri: Option<String>,
}

/// Deprecated systems (and 10480) that GDAL and listgeo misread from the code alone: they take feet for
/// metres, or assume another system.
static MISREAD: [RangeInclusive<u16>; 7] = [
    3356..=3357,
    3366..=3366,
    5466..=5466,
    10480..=10480,
    26814..=26815,
    26819..=26826,
    26830..=26846,
];

/// Returns the system of a code; `None` if it is unknown, of another kind, or too large for a GeoKey.
pub(crate) fn entry(code: u64) -> Option<Entry> {
    let code = u16::try_from(code).ok()?;
    if is_misread(code) {
        return None;
    }
    let text = block_of(code)?;
    let mut fields = text.lines().find_map(|line| {
        let (found, rest) = line.split_once('\t')?;
        (found.parse() == Ok(code)).then(|| rest.split('\t'))
    })?;
    let kind = match fields.next()? {
        "G" => CrsKind::Geographic,
        _ => CrsKind::Projected,
    };
    let unit = match fields.next()? {
        "m" => Unit::Metre,
        "ft" => Unit::Foot,
        "ftUS" => Unit::UsSurveyFoot,
        _ => Unit::Other,
    };
    Some(Entry {
        kind,
        unit,
        wkt: fields.next()?.to_owned(),
        wkt_esri: (fields.next().filter(|wkt| !wkt.is_empty())).map(str::to_owned),
    })
}

fn is_misread(code: u16) -> bool {
    MISREAD.iter().any(|codes| codes.contains(&code))
}

/// Returns the lines of the block with a code.
fn block_of(code: u16) -> Option<String> {
    let (count, rest) = TABLE.split_first_chunk::<2>()?;
    let (ends, blocks) = rest.split_at_checked(usize::from(u16::from_le_bytes(*count)) * 6)?;
    let mut start = 0;
    for end in ends.as_chunks::<6>().0 {
        let [low, high, end @ ..] = *end;
        let end = usize::try_from(u32::from_le_bytes(end)).ok()?;
        if u16::from_le_bytes([low, high]) >= code {
            let mut text = String::new();
            let frame = zstd::stream::read::Decoder::new(blocks.get(start..end)?).ok()?;
            frame.take(MAX_BLOCK_BYTES).read_to_string(&mut text).ok()?;
            return Some(text);
        }
        start = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(code: u64) -> Option<CrsKind> {
        entry(code).map(|entry| entry.kind)
    }

    #[test]
    fn codes_have_the_kind_that_the_registry_gives_them() {
        for code in [4326, 4269, 4258, 4979, 3819, 9057, 4217 - 1] {
            assert_eq!(kind_of(code), Some(CrsKind::Geographic), "{code}");
        }
        for code in [32633, 3857, 2154, 3035, 27700, 4087, 4217, 5514, 32766] {
            assert_eq!(kind_of(code), Some(CrsKind::Projected), "{code}");
        }
        // Geocentric, vertical and compound systems, codes that are too large, and unknown codes.
        for code in [4978, 5773, 6715, 7405, 54_009, 900_913, 0, 1, u64::MAX] {
            assert_eq!(kind_of(code), None, "{code}");
        }
    }

    #[test]
    fn codes_that_readers_misread_are_left_out() {
        for code in MISREAD.clone().into_iter().flatten() {
            assert_eq!(kind_of(code.into()), None, "{code}");
        }
        for code in [3358, 5463, 26813, 26847] {
            assert_eq!(kind_of(code), Some(CrsKind::Projected), "{code}");
        }
    }

    #[test]
    fn units_are_those_of_the_registry() {
        for (code, unit) in [
            (32633, Unit::Metre),
            (2154, Unit::Metre),
            (2263, Unit::UsSurveyFoot),
            (2222, Unit::Foot),
            (22300, Unit::Other),
        ] {
            assert_eq!(entry(code).map(|entry| entry.unit), Some(unit), "{code}");
        }
    }

    #[test]
    fn every_system_has_wkt_with_its_own_code() {
        let (mut count, mut last) = (0, 0);
        while let Some(text) = block_of(last + 1) {
            for line in text.lines() {
                let fields: Vec<&str> = line.split('\t').collect();
                let [code, kind, _, wkt, esri] = fields[..] else {
                    panic!("{line}");
                };
                let code: u16 = code.parse().unwrap();
                assert!(code > last, "{code} is behind {last}");
                last = code;
                count += 1;
                let ends = [
                    format!("[\"EPSG\",\"{code}\"]]"),
                    format!("[\"EPSG\",{code}]]"),
                ];
                assert!(ends.iter().any(|end| wkt.ends_with(end)), "{wkt}");
                let roots: &[&str] = match kind {
                    "G" => &["GEOGCS[", "GEOGCRS["],
                    _ => &["PROJCS[", "PROJCRS["],
                };
                assert!(roots.iter().any(|root| wkt.starts_with(root)), "{wkt}");
                assert!(esri.is_empty() || esri.starts_with(roots[0]), "{esri}");
            }
        }
        assert!(count > 6500, "{count}");
    }
}
