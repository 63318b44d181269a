use super::*;
use crate::runtime::block_on;
use crate::store::{AllowedTarget, Key, ListingSupport, Store};
use serde_json::{Value, json};

fn item(assets: &Value) -> Value {
    json!({
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": "x",
        "geometry": null,
        "properties": {"type": "no kind", "stac_version": 7},
        "links": [{"rel": "item", "href": "./other.json", "type": "application/json"}],
        "assets": assets,
    })
}

fn open_at(base: &str, allowed: &[&str], text: &[u8]) -> Result<Option<StacStore>, StacError> {
    let base = match base.contains("://") {
        true => BaseLocation::Url(base.to_owned()),
        false => BaseLocation::Directory(base.into()),
    };
    let allowed = allowed
        .iter()
        .map(|text| AllowedTarget::parse(text).unwrap());
    let mut options = OpenOptions::default();
    options.targets.allowed = allowed.collect();
    super::open(text, base, "test", &options, std::time::UNIX_EPOCH)
}

fn open_item(base: &str, allowed: &[&str], assets: &Value) -> Result<StacStore, StacError> {
    let text = item(assets).to_string();
    open_at(base, allowed, text.as_bytes()).map(|store| store.unwrap())
}

fn names(store: &StacStore) -> Vec<String> {
    let keys = (store as &dyn Store).members().unwrap();
    keys.iter().map(|key| key.display().into_owned()).collect()
}

fn lost(store: &StacStore) -> Vec<String> {
    let omissions = block_on((store as &dyn Store).omissions());
    let lost = omissions.into_iter().filter(|omission| omission.is_lost);
    lost.map(|omission| omission.what).collect()
}

const BASE: &str = "https://h/a/item.json";

#[test]
fn assets_are_zarr_by_their_type_by_their_path_or_as_references() {
    let zarr = |fields: Value| {
        let assets = json!({"x": fields});
        match open_item(BASE, &[], &assets) {
            Ok(store) => names(&store) == ["x"],
            Err(StacError::NoZarr { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    for media_type in [
        "application/vnd+zarr",
        "application/vnd.zarr; version=3",
        "Application/VND.Zarr;version=2; profile=\"multiscales\"",
        "application/vnd.zarr+icechunk",
        "application/x-zarr",
        "application/zarr",
    ] {
        assert!(
            zarr(json!({"href": "data", "type": media_type})),
            "{media_type}"
        );
    }
    for href in [
        "a.zarr",
        "a.zarr/",
        "A.ZARR?sig=x",
        "b/a.zarr.zip",
        "https://h/a.zarr#b",
    ] {
        assert!(zarr(json!({"href": href, "type": "x"})), "{href}");
    }
    for role in ["references", "index"] {
        assert!(zarr(
            json!({"href": "r", "type": "application/json", "roles": ["data", role]})
        ));
    }
    for other in [
        json!({"href": "r.json", "type": "application/json", "roles": ["metadata"]}),
        json!({"href": "zarr", "type": "image/tiff; application=geotiff"}),
        json!({"href": "a.zarr/thumbnail.png"}),
        json!({"href": ["a"], "type": 7, "roles": {}}),
        json!("text"),
        json!(null),
        json!([[1.5]]),
    ] {
        assert!(!zarr(other.clone()), "{other}");
    }
}

#[test]
fn members_are_read_wherever_they_are_in_the_document_and_other_json_is_no_stac() {
    let text = |text: &str| open_at(BASE, &[], text.as_bytes());
    let assets = r#""assets":{"x":{"href":"a.zarr"}}"#;
    for document in [
        format!(r#"{{{assets},"type":"Collection","stac_version":"1.1.0"}}"#),
        format!("\u{feff}{{\"type\":\"Feature\",\"stac_version\":\"1.0.0\",{assets}}}"),
    ] {
        assert!(text(&document).unwrap().is_some(), "{document}");
    }
    for other in [
        r#"{"version":1,"refs":{"a":"stac_version"}}"#.to_owned(),
        format!(r#"{{"type":"Feature",{assets}}}"#),
        format!(r#"{{"type":"Feature","properties":{{"stac_version":"1"}},{assets}}}"#),
        format!(r#"{{"type":"FeatureCollection","stac_version":"1",{assets}}}"#),
        format!(r#"{{"type":"Feature","stac_version":"1",{assets}"#),
        format!(r#"[{{"type":"Feature","stac_version":"1",{assets}}}]"#),
        r#""stac_version""#.to_owned(),
    ] {
        assert!(text(&other).unwrap().is_none(), "{other}");
    }
    let catalog = r#"{"type":"Catalog","stac_version":"1.0.0"}"#;
    assert!(matches!(text(catalog), Err(StacError::Catalog)));
}

#[test]
fn a_document_without_zarr_is_refused_with_its_assets() {
    let mut assets = json!({"thumbnail": {"href": "t.png", "type": "image/png"}, "n\u{7}": {}});
    let refused = open_item(BASE, &[], &assets).unwrap_err().to_string();
    let words = r"no Zarr asset; its assets are n\u{7} (no type), thumbnail (image/png)";
    assert!(refused.contains(words), "{refused}");
    for number in 0..100 {
        assets[format!("{number:03}")] = json!({"type": "x".repeat(1 << 16)});
    }
    let refused = open_item(BASE, &[], &assets).unwrap_err().to_string();
    assert!(refused.ends_with("and 82 more"), "{refused}");
    assert!(refused.len() < 4096, "{}", refused.len());
    let none = open_item(BASE, &[], &json!({})).unwrap_err().to_string();
    assert!(none.contains("it has no assets"), "{none}");
}

#[test]
fn hostile_names_are_not_shown_and_the_last_of_equal_names_counts() {
    let asset = json!({"href": "a.zarr"});
    let mut assets = json!({"good": asset});
    let long = "x".repeat(300);
    for name in ["..", ".", "", "a/b", "/a", "a\0b", &long] {
        assets[name] = asset.clone();
    }
    let store = open_item(BASE, &[], &assets).unwrap();
    assert_eq!(names(&store), ["good"]);
    let lost = lost(&store);
    assert_eq!(lost.len(), 7, "{lost:?}");
    assert!(lost.iter().any(|what| what.contains("\"a/b\"")), "{lost:?}");
    let twice = r#"{"type":"Feature","stac_version":"1","assets":{"x":{"href":"s3://no/a.zarr"},"x":{"href":"b.zarr"}}}"#;
    let store = open_at(BASE, &[], twice.as_bytes()).unwrap().unwrap();
    assert_eq!(names(&store), ["x"]);
}

#[test]
fn the_number_of_assets_and_the_depth_of_a_document_are_limited() {
    let document = |assets: usize| {
        let assets = (0..assets).map(|number| format!(r#""{number}":{{"href":"a.zarr"}}"#));
        let assets = assets.collect::<Vec<_>>().join(",");
        let text = format!(r#"{{"type":"Feature","stac_version":"1","assets":{{{assets}}}}}"#);
        open_at(BASE, &[], text.as_bytes())
    };
    assert_eq!(names(&document(10_000).unwrap().unwrap()).len(), 10_000);
    assert!(matches!(
        document(10_001),
        Err(StacError::TooManyAssets { .. })
    ));
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let with = |before: &str, inside: &str| {
        let asset = format!(r#"{{"href":"a.zarr"{inside}}}"#);
        let text =
            format!(r#"{{"type":"Feature","stac_version":"1"{before},"assets":{{"x":{asset}}}}}"#);
        open_at(BASE, &[], text.as_bytes()).unwrap().is_some()
    };
    // What is skipped takes no stack.
    assert!(with(&format!(r#","geometry":{nested}"#), ""));
    assert!(with("", &format!(r#","title":{nested}"#)));
    assert!(!with("", &format!(r#","roles":{nested}"#)));
    assert!(!with(&format!(r#","type":{nested}"#), ""));
}

#[test]
fn assets_are_where_targets_of_references_may_be() {
    let open = |base: &str, allowed: &[&str], href: &str| {
        let assets = json!({"x": {"href": href, "type": "application/vnd+zarr"}});
        match open_item(base, allowed, &assets) {
            Ok(store) => Ok(names(&store)),
            Err(error @ StacError::Denied { .. }) => Err(error.to_string()),
            Err(error) => panic!("{error}"),
        }
    };
    for href in ["x", "../x.zarr", "https://h/x", "/etc", "//h/x"] {
        assert!(open(BASE, &[], href).is_ok(), "{href}");
    }
    for (href, words) in [
        ("https://other/x", "--allow-target https://other allows it"),
        ("//other/x", "--allow-target https://other"),
        ("http://169.254.169.254/x", "private address"),
        ("s3://bucket/x", "--allow-target s3://bucket"),
        (
            "file:///etc/passwd",
            "not below the directory of the STAC document",
        ),
        ("memory://x", "not supported"),
        ("redis://h/0", "not supported"),
        ("zip::https://other/x", "not supported"),
    ] {
        let refused = open(BASE, &[], href).unwrap_err();
        assert!(refused.contains(words), "{href}: {refused}");
    }
    assert!(open(BASE, &["any"], "https://other/x").is_ok());
    assert!(open(BASE, &["any"], "http://127.0.0.1/x").is_err());
    assert!(open(BASE, &["any"], "file:///etc").is_err());
    assert!(open(BASE, &["s3://bucket"], "s3://bucket/x").is_ok());
    for href in ["x", "./a/../x", "file:///data/a/x", "/data/a/x"] {
        assert!(open("/data/a", &[], href).is_ok(), "{href}");
    }
    for href in ["../x", "/etc", "file:///etc", "https://h/x"] {
        assert!(open("/data/a", &[], href).is_err(), "{href}");
    }
    assert!(open("s3://b/a/item.json", &[], "../x.zarr").is_ok());
    // One asset that may be read is enough.
    let assets = json!({"x": {"href": "a.zarr"}, "y": {"href": "s3://b/y.zarr"}});
    let store = open_item(BASE, &[], &assets).unwrap();
    assert_eq!(names(&store), ["x", "y"]);
    let key = Key::new(b"y/zarr.json").unwrap();
    let error = block_on(store.stat(&key)).unwrap_err();
    assert_eq!(error.key().as_bytes(), b"y");
    assert!(
        error.to_string().contains("--allow-target s3://b"),
        "{error}"
    );
}

#[test]
fn the_root_is_known_without_opening_an_asset() {
    let assets = json!({"x": {"href": "https://h/nothing.zarr"}});
    let store = open_item(BASE, &[], &assets).unwrap();
    let key = |key: &str| Key::new(key.as_bytes()).unwrap();
    assert!(matches!(store.try_stat(&key("x")), Some(Ok(_))));
    assert!(matches!(
        store.try_stat(&key("zarr.json")),
        Some(Err(StoreError::NotFound { .. }))
    ));
    assert!(store.try_stat(&key("x/zarr.json")).is_none());
    assert_eq!(store.capabilities().listing, ListingSupport::BestEffort);
    let of_bucket = json!({"x": {"href": "x.zarr"}});
    let store = open_item("s3://b/item.json", &[], &of_bucket).unwrap();
    assert_eq!(store.capabilities().listing, ListingSupport::Complete);
}

#[test]
fn open_assets_take_a_share_of_the_memory_and_the_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let group = r#"{"zarr_format":3,"node_type":"group"}"#;
    std::fs::create_dir(directory.path().join("a.zarr")).unwrap();
    std::fs::write(directory.path().join("a.zarr/zarr.json"), group).unwrap();
    let text = item(&json!({"x": {"href": "a.zarr"}, "y": {"href": "a.zarr"}})).to_string();
    let mut options = OpenOptions::default();
    options.zip.memory_limit_bytes = 1 << 20;
    let base = BaseLocation::Directory(directory.path().to_owned());
    let store = super::open(
        text.as_bytes(),
        base,
        "test",
        &options,
        std::time::UNIX_EPOCH,
    );
    let store = store.unwrap().unwrap();
    let stat = |key: &str| block_on(store.stat(&Key::new(key.as_bytes()).unwrap()));
    for _ in 0..2 {
        assert!(stat("y/zarr.json").is_ok());
        let refused = stat("x/zarr.json");
        assert!(
            matches!(refused, Err(StoreError::TooLarge { .. })),
            "{refused:?}"
        );
    }
}
