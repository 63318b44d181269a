//! Data types in numpy's notation.

use std::fmt::Write as _;

use super::{ByteOrder, Field, Fixed, Scalar};

impl Fixed {
    /// Returns numpy's description without quotes around it, e.g. `<f4` or `|V2`. For a structure, returns
    /// the list of its fields as a Python literal, e.g. `[('a', '<i4'), ('m', '<f4', (2, 3))]`. A
    /// [`Scalar::Other`] is `|V` and its size, because numpy has no type for it.
    pub fn numpy_descr(&self) -> String {
        let size = self.size_bytes;
        let mark = |order: ByteOrder| match (self.word_width(), order) {
            (None, _) => '|',
            (Some(_), ByteOrder::Little) => '<',
            (Some(_), ByteOrder::Big) => '>',
        };
        match &self.scalar {
            Scalar::Bool => "|b1".into(),
            Scalar::Int(order) => format!("{}i{size}", mark(*order)),
            Scalar::UInt(order) => format!("{}u{size}", mark(*order)),
            Scalar::Float(order) => format!("{}f{size}", mark(*order)),
            Scalar::Complex(order) => format!("{}c{size}", mark(*order)),
            Scalar::DateTime { order, unit } => format!("{}M8{unit}", mark(*order)),
            Scalar::TimeDelta { order, unit } => format!("{}m8{unit}", mark(*order)),
            Scalar::Bytes => format!("|S{size}"),
            Scalar::Text(order) => format!("{}U{}", mark(*order), size / 4),
            Scalar::Raw | Scalar::Other { .. } => format!("|V{size}"),
            Scalar::Struct(_) | Scalar::SubArray { .. } => self.numpy_literal(),
        }
    }

    /// Returns numpy's description as a Python literal, as in the header of a `.npy` file: `'<f4'`, with
    /// quotes, or a list of fields.
    pub fn numpy_literal(&self) -> String {
        match &self.scalar {
            Scalar::Struct(fields) => {
                let fields: Vec<String> = fields.iter().map(Field::numpy_literal).collect();
                format!("[{}]", fields.join(", "))
            }
            Scalar::SubArray { shape, item } => {
                format!("({}, {})", item.numpy_literal(), python_tuple(shape))
            }
            _ => format!("'{}'", self.numpy_descr()),
        }
    }
}

impl Field {
    fn numpy_literal(&self) -> String {
        let name = python_string(&self.name);
        match &self.data_type.scalar {
            Scalar::SubArray { shape, item } => {
                let shape = python_tuple(shape);
                format!("({name}, {}, {shape})", item.numpy_literal())
            }
            _ => format!("({name}, {})", self.data_type.numpy_literal()),
        }
    }
}

/// Formats a Python tuple: `()`, `(2,)`, `(2, 3)`.
fn python_tuple(items: &[usize]) -> String {
    match items {
        [one] => format!("({one},)"),
        _ => {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            format!("({})", items.join(", "))
        }
    }
}

/// Formats a Python string literal.
fn python_string(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => {
                literal.push('\\');
                literal.push(c);
            }
            c if c.is_control() => {
                // Writing to a String is infallible.
                let _ = write!(literal, "\\U{:08x}", u32::from(c));
            }
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}
