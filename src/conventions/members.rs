//! The members of a group that its attributes name: levels of a pyramid, wells of a plate, columns of a table.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::store::Key;

/// Returns the paths of the members that attributes name, relative to their group, and what names them.
pub(crate) fn named(
    group: &Key,
    attributes: &Map<String, Value>,
) -> BTreeMap<String, &'static str> {
    let is_labels = group.as_bytes().rsplit(|byte| *byte == b'/').next() == Some(b"labels");
    let mut found = BTreeMap::new();
    let ome = attributes.get("ome").and_then(Value::as_object);
    let mut add = |path: Option<&Value>, by| {
        let path = path
            .and_then(Value::as_str)
            .map(|path| path.trim_matches('/'));
        if let Some(path) = path.filter(|path| !path.is_empty() && *path != ".") {
            found.insert(path.to_owned(), by);
        }
    };
    for attributes in [Some(attributes), ome].into_iter().flatten() {
        for image in list(attributes, &["multiscales"]) {
            for level in image
                .get("datasets")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                add(level.get("path"), "`multiscales`");
            }
        }
        for level in list(attributes, &["multiscales", "layout"]) {
            add(level.get("asset"), "`multiscales`");
        }
        for well in list(attributes, &["plate", "wells"]) {
            add(well.get("path"), "`plate`");
        }
        for image in list(attributes, &["well", "images"]) {
            add(image.get("path"), "`well`");
        }
    }
    let labels = ome.filter(|ome| ome.contains_key("labels"));
    let labels = labels.or(is_labels.then_some(attributes));
    for label in labels
        .into_iter()
        .flat_map(|labels| list(labels, &["labels"]))
    {
        add(Some(label), "`labels`");
    }
    if attributes.get("encoding-type").and_then(Value::as_str) == Some("dataframe") {
        for column in list(attributes, &["column-order"]) {
            add(Some(column), "`column-order`");
        }
        add(attributes.get("_index"), "`_index`");
    }
    found
}

/// Returns the entries of the list at a path of member names.
fn list<'a>(attributes: &'a Map<String, Value>, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    let (first, rest) = path.split_first().unwrap_or((&"", &[]));
    let value = attributes.get(*first);
    let value = value.and_then(|value| rest.iter().try_fold(value, |value, name| value.get(name)));
    value.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_the_attributes_of_several_conventions() {
        let named = |attributes: Value| {
            let Value::Object(attributes) = attributes else {
                unreachable!()
            };
            let names = super::named(&Key::root(), &attributes).into_keys();
            names.collect::<Vec<_>>()
        };
        let levels =
            serde_json::json!([{"datasets": [{"path": "0"}, {"path": "s1/"}, {"path": "."}]}]);
        assert_eq!(
            named(serde_json::json!({"multiscales": levels})),
            ["0", "s1"]
        );
        let ome = serde_json::json!({"ome": {"multiscales": levels, "labels": ["nuclei"]}});
        assert_eq!(named(ome), ["0", "nuclei", "s1"]);
        let plate = serde_json::json!({"plate": {"wells": [{"path": "A/1"}]}});
        assert_eq!(named(plate), ["A/1"]);
        let layout = serde_json::json!({"multiscales": {"layout": [{"asset": "r10m"}]}});
        assert_eq!(named(layout), ["r10m"]);
        let table = serde_json::json!(
            {"encoding-type": "dataframe", "column-order": ["age"], "_index": "cell"}
        );
        assert_eq!(named(table), ["age", "cell"]);
        assert!(named(serde_json::json!({"labels": ["no", "members"]})).is_empty());
    }
}
