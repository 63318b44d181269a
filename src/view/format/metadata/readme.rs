//! `README.txt` and `views.json`: the views of a node with an example command each, and the diagnostics.

use std::borrow::Cow;
use std::fmt;

use serde_json::json;

use crate::conventions::description::Field;
use crate::hierarchy::Collection;

/// The maximum length of the text, in characters.
const MAX_CHARACTERS: usize = 1 << 20;

/// A view of a node that is available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct AvailableView {
    /// The name of the file or directory.
    pub(in crate::view) name: String,
    /// The name of the format in `--formats`.
    pub(in crate::view) format: &'static str,
    /// A description of the format in a few words.
    pub(in crate::view) description: &'static str,
    /// An example command that reads the view from the directory of the views.
    pub(in crate::view) example: String,
    /// Whether the directory lists the view.
    pub(in crate::view) is_listed: bool,
    /// What attributes and coordinates say and the format does not express.
    pub(in crate::view) unexpressed: Vec<Field>,
}

/// A reason why a view or a node is not available, or is incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct Diagnostic {
    /// The name of the view; `None` for the node itself.
    pub(in crate::view) view: Option<String>,
    pub(in crate::view) reason: String,
}

/// The content of a `README.txt` and a `views.json`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::view) struct Readme {
    /// The name of the node.
    pub(in crate::view) node: String,
    /// The key of the node.
    pub(in crate::view) key: String,
    pub(in crate::view) is_array: bool,
    pub(in crate::view) views: Vec<AvailableView>,
    /// Suffixes of those views of the arrays of a group that the group's directory does not list.
    pub(in crate::view) unlisted: Vec<String>,
    /// The hierarchies of a collection.
    pub(in crate::view) collection: Collection,
    pub(in crate::view) diagnostics: Vec<Diagnostic>,
}

impl Diagnostic {
    pub(in crate::view) fn of_node(reason: impl Into<String>) -> Self {
        Self {
            view: None,
            reason: reason.into(),
        }
    }

    pub(in crate::view) fn of_view(view: &str, reason: impl Into<String>) -> Self {
        Self {
            view: Some(view.to_owned()),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    /// Writes the diagnostic on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(view) = &self.view {
            write!(f, "{}: ", one_line(view))?;
        }
        f.write_str(&one_line(&self.reason))
    }
}

fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\r']) {
        true => text.replace(['\n', '\r'], " ").into(),
        false => text.into(),
    }
}

/// Quotes a file name for a shell.
pub(crate) fn shell_quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=@,:".contains(c);
    match name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

impl Readme {
    /// Returns the text, cut off after [`MAX_CHARACTERS`].
    pub(in crate::view) fn text(&self) -> String {
        let mut text = self.to_string();
        if let Some((end, _)) = text.char_indices().nth(MAX_CHARACTERS) {
            text.truncate(end);
            text.push_str("...\nThe rest is left out.\n");
        }
        text
    }
}

impl Readme {
    /// Writes a line for all files that do not express the same fields.
    fn write_unexpressed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self
            .views
            .iter()
            .filter(|view| !view.unexpressed.is_empty());
        let mut lines: Vec<(&[Field], Vec<Cow<'_, str>>)> = Vec::new();
        for view in lost {
            let name = one_line(&view.name);
            match lines
                .iter_mut()
                .find(|(fields, _)| *fields == view.unexpressed)
            {
                Some((_, names)) => names.push(name),
                None => lines.push((&view.unexpressed, vec![name])),
            }
        }
        if !lines.is_empty() {
            writeln!(
                f,
                "\nWhat attributes and coordinates say, and the format of these files does not express:\n"
            )?;
        }
        for (fields, names) in lines {
            let fields: Vec<String> = fields.iter().map(Field::to_string).collect();
            writeln!(f, "{}: {}", names.join(" "), fields.join(", "))?;
        }
        Ok(())
    }

    /// Returns the list as a JSON document of the schema `zarrfs.views/1`.
    pub(in crate::view) fn json(&self) -> String {
        let views = self.views.iter().map(|view| {
            json!({
                "name": view.name,
                "format": view.format,
                "description": view.description,
                "example": view.example,
                "listed": view.is_listed,
                "not_expressed": view.unexpressed.iter().map(Field::to_string).collect::<Vec<_>>(),
            })
        });
        let diagnostics = self
            .diagnostics
            .iter()
            .map(|diagnostic| json!({"view": diagnostic.view, "reason": diagnostic.reason}));
        let mut list = json!({
            "schema": "zarrfs.views/1",
            "node": self.node,
            "key": self.key,
            "node_type": if self.is_array { "array" } else { "group" },
            "views": views.collect::<Vec<_>>(),
            "diagnostics": diagnostics.collect::<Vec<_>>(),
        });
        if !self.collection.is_empty() {
            list["hierarchies"] = json!(self.collection.hierarchies);
            if !self.collection.unread.is_empty() {
                list["unread_directories"] = json!(self.collection.unread);
            }
        }
        format!("{list:#}\n")
    }
}

impl Readme {
    /// Writes the hierarchies of a collection, with the directories of their views.
    fn write_collection(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.collection;
        if found.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nThe source is a collection of hierarchies. Each has its own views, in:"
        )?;
        for path in &found.hierarchies {
            writeln!(f, "    {}/.zarrfs", one_line(path))?;
        }
        if !found.unread.is_empty() {
            writeln!(f, "Directories beside it that were not read:")?;
        }
        for path in &found.unread {
            writeln!(f, "    {}", one_line(path))?;
        }
        if found.is_partial && found.unread.is_empty() {
            writeln!(
                f,
                "The search for hierarchies ended early: more may be here."
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Readme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = one_line(&self.node);
        let kind = if self.is_array { "array" } else { "group" };
        writeln!(
            f,
            "This directory has the views of the {kind} {node}: read-only files that zarrfs renders from\n\
             the store when they are read."
        )?;
        if !self.is_array {
            writeln!(f, "The views of the arrays of the group are here, too.")?;
        }
        self.write_collection(f)?;
        if !self.unlisted.is_empty() {
            writeln!(
                f,
                "Of each array, views with these suffixes open by name and are not listed:\n{}.",
                self.unlisted.join(" ")
            )?;
        }
        for view in &self.views {
            let (name, example) = (one_line(&view.name), one_line(&view.example));
            let by_name = if view.is_listed {
                ""
            } else {
                "; not listed, opens by name"
            };
            writeln!(
                f,
                "\n{name}  ({}{by_name})\n    {example}",
                view.description
            )?;
        }
        self.write_unexpressed(f)?;
        if !self.diagnostics.is_empty() {
            writeln!(
                f,
                "\nDiagnostics: what is not available or incomplete, and the reason.\n"
            )?;
        }
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readme() -> Readme {
        Readme {
            node: "sst".into(),
            key: "g/sst".into(),
            is_array: true,
            views: vec![AvailableView {
                name: "sst.nc".into(),
                format: "nc",
                description: "NetCDF-4",
                example: "ncdump -h sst.nc".into(),
                is_listed: true,
                unexpressed: Vec::new(),
            }],
            unlisted: Vec::new(),
            collection: Collection::default(),
            diagnostics: vec![
                Diagnostic::of_node(".zarray is ignored"),
                Diagnostic::of_view("sst.tif", "line 1\nline 2"),
            ],
        }
    }

    #[test]
    fn every_view_has_an_example_and_every_diagnostic_is_one_line() {
        let lines = [
            "This directory has the views of the array sst: read-only files that zarrfs renders from",
            "the store when they are read.",
            "",
            "sst.nc  (NetCDF-4)",
            "    ncdump -h sst.nc",
            "",
            "Diagnostics: what is not available or incomplete, and the reason.",
            "",
            ".zarray is ignored",
            "sst.tif: line 1 line 2",
            "",
        ];
        assert_eq!(readme().text(), lines.join("\n"));
    }

    #[test]
    fn files_that_do_not_express_the_same_share_a_line() {
        let view = |name: &str, unexpressed: &[Field]| AvailableView {
            name: name.into(),
            unexpressed: unexpressed.to_vec(),
            ..readme().views.remove(0)
        };
        let list = Readme {
            views: vec![
                view("a.npy", &[Field::Spacing, Field::Missing]),
                view("a.nii", &[Field::Missing]),
                view("a.bin", &[Field::Spacing, Field::Missing]),
                view("a.h5", &[]),
            ],
            ..readme()
        };
        let text = list.text();
        assert!(
            text.contains(
                "\na.npy a.bin: the spacing, the missing value\na.nii: the missing value\n"
            )
        );
        let json: serde_json::Value = serde_json::from_str(&list.json()).unwrap();
        assert_eq!(
            json["views"][1]["not_expressed"],
            json!(["the missing value"])
        );
    }

    #[test]
    fn a_node_without_problems_has_no_diagnostics() {
        let group = Readme {
            is_array: false,
            unlisted: vec![".bin".into(), ".chunks".into()],
            diagnostics: Vec::new(),
            ..readme()
        };
        let text = group.text();
        assert!(text.contains("the group sst") && text.contains("\n.bin .chunks.\n"));
        assert!(!text.contains("Diagnostics"));
    }

    #[test]
    fn the_list_of_views_is_also_a_json_document() {
        let json: serde_json::Value = serde_json::from_str(&readme().json()).unwrap();
        assert_eq!(json["schema"], "zarrfs.views/1");
        assert_eq!(json["key"], "g/sst");
        assert_eq!(json["views"][0]["example"], "ncdump -h sst.nc");
        assert_eq!(json["diagnostics"][0]["view"], serde_json::Value::Null);
        assert_eq!(json["diagnostics"][1]["view"], "sst.tif");
    }

    #[test]
    fn a_long_text_is_truncated() {
        let mut long = readme();
        long.diagnostics = vec![Diagnostic::of_node("ü".repeat(MAX_CHARACTERS))];
        let text = long.text();
        assert!(text.ends_with("ü...\nThe rest is left out.\n"));
        assert!(text.chars().count() < MAX_CHARACTERS + 100);
    }

    #[test]
    fn names_with_special_characters_are_quoted() {
        assert_eq!(shell_quoted("a/b-1.npy"), "a/b-1.npy");
        assert_eq!(shell_quoted("it's $x"), r"'it'\''s $x'");
    }
}
