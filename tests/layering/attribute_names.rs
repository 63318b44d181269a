//! Attribute names of conventions: only `conventions` reads them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The names of attributes, and of members of attributes, that mean something in a convention.
const NAMES: &[&str] = &[
    // CF, and the NetCDF Users Guide.
    "Conventions",
    "_FillValue",
    "_Unsigned",
    "actual_range",
    "add_offset",
    "ancillary_variables",
    "axis",
    "bounds",
    "calendar",
    "cell_measures",
    "cell_methods",
    "climatology",
    "compress",
    "coordinates",
    "flag_masks",
    "flag_meanings",
    "flag_values",
    "formula_terms",
    "grid_mapping",
    "long_name",
    "missing_value",
    "positive",
    "scale_factor",
    "standard_name",
    "units",
    "valid_max",
    "valid_min",
    "valid_range",
    // Grid mappings of CF, GDAL, ESRI and PROJ.
    "GeoTransform",
    "_CRS",
    "crs_wkt",
    "earth_radius",
    "epsg_code",
    "esri_pe_string",
    "geographic_crs_name",
    "grid_mapping_name",
    "grid_north_pole_longitude",
    "horizontal_datum_name",
    "inverse_flattening",
    "prime_meridian_name",
    "proj4",
    "proj4_params",
    "proj4_string",
    "proj4text",
    "reference_ellipsoid_name",
    "semi_major_axis",
    "semi_minor_axis",
    "spatial_ref",
    "standard_parallel",
    "towgs84",
    // xarray, netCDF-C and NCZarr.
    "_ARRAY_DIMENSIONS",
    "_NCProperties",
    "_nc3_strict",
    "_nczarr_attrs",
    "dtype",
    // GeoZarr and the conventions of zarr-conventions.
    "asset",
    "derived_from",
    "layout",
    "proj:code",
    "proj:epsg",
    "proj:projjson",
    "proj:wkt2",
    "spatial:bbox",
    "spatial:dimensions",
    "spatial:registration",
    "spatial:shape",
    "spatial:transform",
    "spatial:transform_type",
    "tileMatrices",
    "tile_matrix_limits",
    "tile_matrix_set",
    "transform",
    "zarr_conventions",
    // OME-Zarr.
    "axes",
    "coordinateSystems",
    "coordinateTransformations",
    "datasets",
    "labels",
    "multiscales",
    "ome",
    "omero",
    "orientation",
    "plate",
    "well",
    // N5.
    "downsamplingFactors",
    "multiScale",
    "pixelResolution",
    "resolution",
    // AnnData and SpatialData.
    "_index",
    "column-order",
    "encoding-type",
    "encoding-version",
    "na-value",
    "spatialdata_attrs",
    // VCF Zarr.
    "vcf_zarr_version",
    // NIfTI-Zarr: an array.
    "nifti",
];

/// The beginnings of further names.
const PREFIXES: &[&str] = &["proj:", "spatial:", "_nczarr_", "_NCZARR_"];

/// Members of attributes that `conventions` reads and whose names are words with other meanings elsewhere: members of
/// PROJJSON, of transforms, axes and channels of OME-Zarr, and parameters of PROJ.
const WORDS: &[&str] = &[
    "channels",
    "conversion_factor",
    "datum",
    "datum_ensemble",
    "dimensions",
    "ellps",
    "id",
    "ids",
    "name",
    "offset",
    "order",
    "ordering",
    "output",
    "parameters",
    "path",
    "pm",
    "prime_meridian",
    "scale",
    "transformation",
    "transformations",
    "translate",
    "translation",
    "type",
    "unit",
    "value",
];

/// Literals that are permitted outside `conventions`: the beginning of the path of the file, the literals, the reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    (
        "translate/fill_mask.rs",
        &["_FillValue", "_CRS"],
        "a translation retains the missing values of xarray and GDAL; it is below conventions",
    ),
    (
        "zarr/v2.rs",
        &["_ARRAY_DIMENSIONS"],
        "arrays of v2 have dimension names only in this attribute",
    ),
    (
        "zarr/n5.rs",
        &[
            "axes",
            "pixelResolution",
            "multiScale",
            "downsamplingFactors",
        ],
        "axes are the dimension names of an N5 array; the others tell a group of N5 from another directory",
    ),
    ("zarr/", &["dtype"], "a member of .zarray"),
    (
        "translate/",
        &["dtype"],
        "a member of .zarray, and of configurations of codecs",
    ),
    (
        "codec/",
        &["axis", "dtype", "labels"],
        "members of configurations of codecs",
    ),
    ("node.rs", &["dtype"], "the name of an extended attribute"),
    (
        "zarr/data_type/v3.rs",
        &["scale_factor"],
        "a member of the configuration of numpy.datetime64",
    ),
    (
        "translate/types.rs",
        &["scale_factor"],
        "a member of the configuration of numpy.datetime64",
    ),
    (
        "inspect/info_text.rs",
        &["axes", "axis", "orientation"],
        "members of the JSON of descriptions",
    ),
    (
        "store/remote/protocol/hf/url.rs",
        &["datasets"],
        "a kind of repositories of Hugging Face",
    ),
    ("view/format", &["ome", "nifti"], "names of formats"),
    (
        "view/file/source_name.rs",
        &["ome"],
        "an ending of file names",
    ),
];

/// The functions of `conventions` whose argument is the name of an attribute or of a member of one.
const READERS: &[&str] = &[
    "attribute",
    "attribute_text",
    "contains_key",
    "declared",
    "find",
    "get",
    "has",
    "own",
    "some",
];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the source files without those of tests: the path in `src`, and the code.
fn files() -> Vec<(String, TokenStream)> {
    let mut pending = vec![src()];
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem == "tests" || stem == "hostile" {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let code = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(src()).unwrap().to_str().unwrap();
                files.push((path.to_owned(), code.parse().unwrap()));
            }
        }
    }
    files
}

/// Returns the code without attributes, which are comments too, and without items for tests.
fn without_tests(code: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = code.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_attribute = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#');
        if !is_attribute {
            kept.push(token);
            continue;
        }
        let is_inner =
            matches!(tokens.peek(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
        if is_inner {
            tokens.next();
        }
        let attribute = tokens.next().unwrap().to_string();
        if is_inner || attribute.split_whitespace().collect::<String>() != "[cfg(test)]" {
            continue;
        }
        // The item ends with its braces, or with a semicolon.
        for token in tokens.by_ref() {
            let is_end = match &token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(mark) => mark.as_char() == ';',
                _ => false,
            };
            if is_end {
                break;
            }
        }
    }
    kept
}

/// Returns the text of a literal of text or bytes.
fn text(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else {
        return None;
    };
    let literal = literal.to_string();
    let (_, text) = literal.split_once('"')?;
    Some(text.rsplit_once('"')?.0.to_owned())
}

/// Appends the texts of all literals.
fn push_texts(code: TokenStream, texts: &mut BTreeSet<String>) {
    for token in without_tests(code) {
        texts.extend(text(&token));
        if let TokenTree::Group(group) = token {
            push_texts(group.stream(), texts);
        }
    }
}

/// Appends the literals that are the last argument of one of [`READERS`].
fn push_names(code: TokenStream, names: &mut BTreeSet<String>) {
    let tokens = without_tests(code);
    for (place, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        let reader = place.checked_sub(1).and_then(|before| tokens.get(before));
        let is_reader = matches!(reader, Some(TokenTree::Ident(name)) if READERS.iter().any(|reader| name == reader));
        if is_reader && group.delimiter() == Delimiter::Parenthesis {
            let arguments: Vec<TokenTree> = group.stream().into_iter().collect();
            names.extend(arguments.last().and_then(text));
        }
        push_names(group.stream(), names);
    }
}

fn is_name(text: &str) -> bool {
    NAMES.contains(&text) || PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

#[test]
fn only_conventions_name_the_attributes_of_conventions() {
    let mut wrong = BTreeSet::new();
    let mut used = BTreeSet::new();
    for (path, code) in files() {
        if path.starts_with("conventions") {
            continue;
        }
        let mut texts = BTreeSet::new();
        push_texts(code, &mut texts);
        for text in texts.into_iter().filter(|text| is_name(text)) {
            let excepted = EXCEPTIONS
                .iter()
                .position(|(file, names, _)| path.starts_with(file) && names.contains(&&text[..]));
            match excepted {
                Some(exception) => drop(used.insert(exception)),
                None => drop(wrong.insert(format!("{path}: {text}"))),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(used.len(), EXCEPTIONS.len(), "an exception is not needed");
}

#[test]
fn all_attribute_names_that_conventions_read_are_listed() {
    let mut names = BTreeSet::new();
    for (path, code) in files() {
        if path == "conventions/cf/names.rs" {
            push_texts(code, &mut names);
        } else if path.starts_with("conventions") {
            push_names(code, &mut names);
        }
    }
    assert!(
        names.contains("multiscales") && names.contains("spatial:shape"),
        "{names:?}"
    );
    names.retain(|name| !is_name(name) && !WORDS.contains(&&name[..]));
    assert!(names.is_empty(), "{names:#?}");
}

#[test]
fn literals_are_found_outside_of_comments_and_tests() {
    let code = r###"
        //! The attribute `units`: "axis".
        #[doc = "bounds"]
        const A: &str = "units";
        fn f() { g(&[("calendar", b"ome", r#"nifti"#)]); some(x, "axes"); }
        #[cfg(test)]
        mod tests { const B: &str = "omero"; }
        #[cfg(test)]
        use x;
        fn h() { members.get("plate") }
    "###;
    let mut texts = BTreeSet::new();
    push_texts(code.parse().unwrap(), &mut texts);
    let expected = ["units", "calendar", "ome", "nifti", "axes", "plate"];
    assert_eq!(texts, expected.map(str::to_owned).into());
    let mut names = BTreeSet::new();
    push_names(code.parse().unwrap(), &mut names);
    assert_eq!(names, ["axes", "plate"].map(str::to_owned).into());
}
