//! The messages of a successful mount, and their destinations.

use std::process::Command;

use crate::place::*;
use crate::support::*;

fn on_terminal(command: &str) -> String {
    let mut script = Command::new("script");
    script.args(["-qec", command, "/dev/null"]);
    output_of(&mut script).ok().out.clone()
}

#[test]
fn the_mount_report_is_printed_on_a_terminal_only() {
    let place = Place::new();
    let store = place.store_named("store");
    let binary = zarrfs();
    let binary = binary.get_program().to_str().unwrap();
    let (source, point) = (store.to_str().unwrap(), place.path.to_str().unwrap());
    let mounted = format!("{source} is mounted on {point}");
    let summary = match mounted.len() > 57 {
        true => "\r\nzarrfs: Zarr v3 group",
        false => ": Zarr v3 group",
    };
    for (options, views) in [
        ("", format!("zarrfs: views: {point}/.zarrfs\r\n")),
        ("--views off", String::new()),
        ("--tree both", format!("zarrfs: views: {point}/views\r\n")),
        ("--tree views", format!("zarrfs: views: {point}\r\n")),
    ] {
        let log = place.join("log");
        let log = log.to_str().unwrap();
        let _ = std::fs::remove_file(log);
        let output = on_terminal(&format!(
            "{binary} {source} {point} --log-file {log} {options}"
        ));
        let unmount = format!("zarrfs: to unmount: zarrfs umount {point}\r\n");
        assert_eq!(
            output,
            format!("zarrfs: {mounted}{summary}\r\n{views}{unmount}")
        );
        let logged = std::fs::read_to_string(log).unwrap().replace("INFO: ", "");
        assert_eq!(logged, output.replace('\r', ""));
        place.unmount(&[]).ok();
    }
    let quiet = on_terminal(&format!("{binary} {source} {point} 2>/dev/null"));
    assert_eq!(quiet, "");
    place.unmount(&[]).ok();
}

#[test]
fn the_report_names_some_views() {
    let place = Place::new();
    let binary = zarrfs();
    let (binary, point) = (binary.get_program().display(), place.path.display());
    let output = on_terminal(&format!("{binary} demo: {point} --path v3"));
    let views = format!("zarrfs: views: {point}/.zarrfs (v3.nc");
    assert!(output.contains(&views), "{output}");
    let output = on_terminal(&format!(
        "cd /; {binary} umount {point}; {binary} demo: {point}"
    ));
    assert!(output.contains("zarrfs: demo is mounted on"), "{output}");
    assert!(matches!(output.lines().count(), 3 | 4), "{output}");
    place.unmount(&[]).ok();
}

#[test]
fn the_report_has_the_counts_of_consolidated_metadata() {
    let place = Place::new();
    let store = place.make_dir("consolidated");
    let zarray = r#"{"zarr_format":2,"shape":[1024,512],"chunks":[512,512],"dtype":"<f4","compressor":null,"filters":null,"fill_value":0,"order":"C"}"#;
    let group = r#"{"zarr_format":2}"#;
    let copies = format!(
        r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{group},"g/.zgroup":{group},"g/a/.zarray":{zarray},"b/.zarray":{zarray}}}}}"#
    );
    std::fs::write(store.join(".zgroup"), group).unwrap();
    std::fs::write(store.join(".zmetadata"), copies).unwrap();
    let binary = zarrfs();
    let (source, point) = (store.display(), place.path.display());
    let command = format!("{} {source} {point}", binary.get_program().display());
    let output = on_terminal(&command);
    assert!(
        output.contains("Zarr v2, 1 group, 2 arrays, 4.0 MiB decoded"),
        "{output}"
    );
    place.unmount(&[]).ok();
}

#[test]
fn the_version_is_one_line_or_a_list_of_built_in_components() {
    let line = format!("zarrfs {}\n", env!("CARGO_PKG_VERSION"));
    let short = output_of(zarrfs().arg("-V"));
    assert_eq!(short.ok().out, line);
    let long = output_of(zarrfs().arg("--version"));
    assert!(long.ok().out.starts_with(&line), "{long:?}");
    for word in [
        "zarr: v2, v3",
        " blosc ",
        " zstd",
        "not built in: pickle",
        "s3://",
        "https://",
        "zip",
    ] {
        assert!(long.out.contains(word), "no {word}: {long:?}");
    }
    // The name of the transport matches the dependency of the build.
    let manifest = include_str!("../../Cargo.toml");
    let declared = manifest.lines().find(|line| line.starts_with("fuser = "));
    let fuser = declared.and_then(|line| line.split("\"=").nth(1)?.split('"').next());
    let fuser = format!("fuser {}", fuser.unwrap());
    assert!(long.out.contains(&fuser), "no {fuser}: {long:?}");
}

/// `ZARRFS_UPDATE_MANUAL=1 cargo test --test linux options` writes the table.
#[test]
fn the_options_in_the_manual_are_those_of_the_declaration() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/options.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- options -->\n").unwrap();
    let (table, after) = rest.split_once("<!-- /options -->\n").unwrap();
    let wanted = zarrfs::cli::options();
    if std::env::var_os("ZARRFS_UPDATE_MANUAL").is_some() {
        let text = format!("{before}<!-- options -->\n{wanted}<!-- /options -->\n{after}");
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert!(
        table == wanted,
        "paste this into src/manual/options.md, or set ZARRFS_UPDATE_MANUAL:\n{wanted}"
    );
}

#[test]
fn every_page_of_the_manual_has_a_title_and_is_a_topic_that_the_readme_links_to() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for topic in zarrfs::cli::TOPICS {
        assert!(topic.text.starts_with("# "), "{}", topic.name);
        let link = format!("src/manual/{}.md", topic.name);
        assert!(readme.contains(&link), "{link}");
        let shown = output_of(zarrfs().args(["help", topic.name]));
        assert_eq!(shown.ok().out, topic.text);
    }
    let files = std::fs::read_dir(root.join("src/manual")).unwrap();
    let is_page = |path: &std::path::Path| path.extension().is_some_and(|end| end == "md");
    let pages = files.filter(|file| is_page(&file.as_ref().unwrap().path()));
    assert_eq!(pages.count(), zarrfs::cli::TOPICS.len());
    output_of(zarrfs().args(["help", "nope"])).failed(1, &["`nope`", "geotiff"]);
}

#[test]
fn a_zip_of_an_unsupported_method_is_refused_with_its_name_and_the_supported_ones() {
    let place = Place::new();
    let zip = place.join("deflate64.zip");
    let script = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("zarr.json", sys.argv[2])
with open(sys.argv[1], "rb+") as file:
    archive = bytearray(file.read())
    archive[8] = archive[archive.index(b"PK\1\2") + 10] = 9
    file.seek(0)
    file.write(archive)
"#;
    let mut python = Command::new("python3");
    run(python.args(["-c", script]).arg(&zip).arg(GROUP));
    let words = [
        "deflate64.zip",
        "zarr.json",
        "method 9 (deflate64)",
        "bzip2, lzma, zstd, xz",
    ];
    place.attempt(&zip, &[]).failed(32, &words);
    let native = place.attempt(&zip, &["--views", "off", "--strict"]);
    native.failed(32, &["deflate64.zip", "--strict", "cannot be read"]);
    place.assert_untouched();
}
