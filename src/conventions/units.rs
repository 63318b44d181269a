//! Units of length and time by the names of UDUNITS-2, which OME-Zarr and CF use, and by their symbols.

/// Prefixes of the International System of Units: names, symbols, and powers of ten.
const PREFIXES: [(&str, &str, i32); 20] = [
    ("yotta", "Y", 24),
    ("zetta", "Z", 21),
    ("exa", "E", 18),
    ("peta", "P", 15),
    ("tera", "T", 12),
    ("giga", "G", 9),
    ("mega", "M", 6),
    ("kilo", "k", 3),
    ("hecto", "h", 2),
    ("deca", "da", 1),
    ("deci", "d", -1),
    ("centi", "c", -2),
    ("milli", "m", -3),
    ("micro", "\u{b5}", -6),
    ("nano", "n", -9),
    ("pico", "p", -12),
    ("femto", "f", -15),
    ("atto", "a", -18),
    ("zepto", "z", -21),
    ("yocto", "y", -24),
];

/// Returns the length in metres of a unit; `None` for other units.
pub fn metres(unit: &str) -> Option<f64> {
    let unit = unit.trim();
    // Symbols are case-sensitive: `Mm` is a megametre.
    Some(match unit {
        "m" => 1.0,
        "km" => 1e3,
        "dm" => 1e-1,
        "cm" => 1e-2,
        "mm" => 1e-3,
        "um" | "\u{b5}m" | "\u{3bc}m" => 1e-6,
        "nm" => 1e-9,
        "\u{c5}" | "\u{212b}" | "\u{e5}" => 1e-10,
        "pm" => 1e-12,
        "fm" => 1e-15,
        "in" | "\"" => 0.0254,
        "ft" => 0.3048,
        _ => match singular(&unit.to_ascii_lowercase()).as_str() {
            "micron" => 1e-6,
            "angstrom" | "\u{e5}ngstr\u{f6}m" => 1e-10,
            "inch" | "inche" => 0.0254,
            "foot" | "feet" => 0.3048,
            "yard" => 0.9144,
            "mile" => 1609.344,
            "parsec" => 3.085_677_581_491_367e16,
            name => power(name, &["meter", "metre"])?,
        },
    })
}

/// Returns the length in seconds of a unit, also of one that counts from a date; `None` for other units.
pub fn seconds(unit: &str) -> Option<f64> {
    // CF puts an epoch after the unit.
    let unit = unit.split(" since ").next().unwrap_or(unit).trim();
    Some(match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ns" => 1e-9,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => match singular(&unit.to_ascii_lowercase()).as_str() {
            "sec" => 1.0,
            "min" | "minute" => 60.0,
            "hr" | "hour" => 3600.0,
            "day" => 86_400.0,
            name => power(name, &["second"])?,
        },
    })
}

fn singular(name: &str) -> String {
    let is_plural = name.len() > 3;
    let name = name.strip_suffix('s').filter(|_| is_plural).unwrap_or(name);
    name.to_owned()
}

/// Returns the power of ten of a base unit with the name of a prefix.
fn power(name: &str, bases: &[&str]) -> Option<f64> {
    let prefix = bases.iter().find_map(|base| name.strip_suffix(base))?;
    if prefix.is_empty() {
        return Some(1.0);
    }
    let (.., exponent) = PREFIXES.iter().find(|(known, ..)| *known == prefix)?;
    // The nearest number to the decimal one, which `powi` does not promise.
    format!("1e{exponent}").parse().ok()
}

/// Returns the symbol of a unit of length in the OME Data Model (`UnitsLength`); `None` for other units.
pub fn ome_length(unit: &str) -> Option<String> {
    ome_symbol(
        metres(unit)?,
        "m",
        &[
            (1e-10, "\u{c5}"),
            (0.0254, "in"),
            (0.3048, "ft"),
            (0.9144, "yd"),
            (1609.344, "mi"),
            (3.085_677_581_491_367e16, "pc"),
        ],
    )
}

/// Returns the symbol of a unit of time in the OME Data Model (`UnitsTime`); `None` for other units, and for
/// those that count from a date.
pub fn ome_time(unit: &str) -> Option<String> {
    if unit.contains(" since ") {
        return None;
    }
    ome_symbol(
        seconds(unit)?,
        "s",
        &[(60.0, "min"), (3600.0, "h"), (86_400.0, "d")],
    )
}

#[expect(clippy::float_cmp, reason = "the numbers are constants of this file")]
fn ome_symbol(size: f64, base: &str, others: &[(f64, &str)]) -> Option<String> {
    if size == 1.0 {
        return Some(base.to_owned());
    }
    let other = others.iter().find(|(known, _)| *known == size);
    let of_prefix = || {
        let prefix = PREFIXES
            .iter()
            .find(|(_, _, exponent)| format!("1e{exponent}").parse() == Ok(size));
        prefix.map(|(_, symbol, _)| format!("{symbol}{base}"))
    };
    other
        .map(|(_, symbol)| (*symbol).to_owned())
        .or_else(of_prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_units_are_case_sensitive_and_names_are_not() {
        for (unit, expected) in [
            ("\u{c5}", Some(1e-10)),
            ("\u{212b}", Some(1e-10)),
            ("Angstrom", Some(1e-10)),
            ("mm", Some(1e-3)),
            ("Mm", None),
            ("Metre", Some(1.0)),
            ("metres", Some(1.0)),
            ("\u{b5}m", Some(1e-6)),
            ("microns", Some(1e-6)),
            ("attometer", Some(1e-18)),
            ("inches", Some(0.0254)),
            ("furlong", None),
            ("meter per second", None),
        ] {
            assert_eq!(metres(unit), expected, "{unit}");
        }
        for (unit, expected) in [
            ("ms", Some(1e-3)),
            ("Ms", None),
            ("Days since 2000-01-01", Some(86_400.0)),
            ("\u{3bc}s", Some(1e-6)),
            ("femtoseconds", Some(1e-15)),
            ("hours", Some(3600.0)),
        ] {
            assert_eq!(seconds(unit), expected, "{unit}");
        }
    }

    #[test]
    fn the_ome_data_model_has_symbols() {
        for (unit, symbol) in [
            ("micrometer", Some("\u{b5}m")),
            ("um", Some("\u{b5}m")),
            ("Angstrom", Some("\u{c5}")),
            ("kilometers", Some("km")),
            ("inch", Some("in")),
            ("meter", Some("m")),
            ("second", None),
        ] {
            assert_eq!(ome_length(unit).as_deref(), symbol, "{unit}");
        }
        assert_eq!(ome_time("ms").as_deref(), Some("ms"));
        assert_eq!(ome_time("days since 2000-01-01"), None);
        assert_eq!(ome_time("minute").as_deref(), Some("min"));
    }
}
