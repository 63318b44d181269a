//! `zarrfs info --preview`, on pseudo terminals whose answers the tests give, and into pipes.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::place::output_of;
use crate::stores::*;
use crate::support::*;

/// The size of the terminal. The picture of 64 x 32 pixels is larger than half of it, so half blocks have its pixels.
const COLUMNS: u16 = 100;
const ROWS: u16 = 120;
/// The last request to the terminal.
const LAST_REQUEST: &[u8] = b"\x1b[c";

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Runs `zarrfs info demo:` with `arguments` on a pseudo terminal that answers with `answer`. Returns what the terminal
/// received after the requests, with the exit status and the modes of the terminal at the end.
fn on_terminal(arguments: &str, answer: &str) -> Vec<u8> {
    let program = env!("CARGO_BIN_EXE_zarrfs");
    let command = format!(
        "stty cols {COLUMNS} rows {ROWS}; {program} info demo: {arguments}; echo status $?; stty -a | grep -o '.icanon'"
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .env("COLORTERM", "truecolor")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut terminal = script.spawn().unwrap();
    let mut input = terminal.stdin.take().unwrap();
    let mut output = terminal.stdout.take().unwrap();
    let (mut received, mut start) = (Vec::new(), None);
    let mut bytes = [0; 4096];
    loop {
        let count = output.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        received.extend(&bytes[..count]);
        if start.is_none() && contains(&received, LAST_REQUEST) {
            input.write_all(answer.as_bytes()).unwrap();
            start = Some(received.len());
        }
    }
    drop(input);
    assert!(terminal.wait().unwrap().success());
    received.split_off(start.unwrap_or(0))
}

/// Returns the pixels of a file as red, green, blue and alpha, with width and height.
fn pixels(file: &[u8]) -> (Vec<[u8; 4]>, u32, u32) {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(png::Transformations::ALPHA);
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut bytes).unwrap();
    (bytes.as_chunks::<4>().0.to_vec(), frame.width, frame.height)
}

/// Returns the pixels of the view, from `zarrfs export`.
fn view(key: &str) -> Vec<[u8; 4]> {
    let dir = scratch();
    let file = dir.path().join("view.png");
    let source = format!("demo:{key}");
    output_of(zarrfs().args(["export", &source]).arg(&file)).ok();
    let (pixels, width, height) = pixels(&fs::read(file).unwrap());
    assert_eq!((width, height), (64, 32));
    pixels
}

/// Asserts that a screen has the pixels of the view in half blocks, below `caption`.
#[track_caller]
fn assert_blocks(received: &[u8], caption: &str) {
    let size = |cells| NonZero::new(cells).unwrap();
    let mut parser = vt100::Parser::new(size(ROWS), size(COLUMNS), 0);
    parser.process(received);
    let screen = parser.screen();
    let lines: Vec<String> = screen.rows(0, COLUMNS).collect();
    let line = lines.iter().position(|line| line.contains(caption));
    let first = line.unwrap_or_else(|| panic!("{lines:#?}")) + 1;
    let (mut row, mut column) = (u16::try_from(first).unwrap(), 0);
    for pair in view("v3/t2m").chunks_exact(2 * 64) {
        for (top, bottom) in pair[..64].iter().zip(&pair[64..]) {
            let cell = screen.cell(row, column).unwrap();
            let color = |[red, green, blue, _]: [u8; 4]| vt100::Color::Rgb(red, green, blue);
            assert_eq!(cell.contents(), "\u{2580}", "{row} {column}");
            assert_eq!(cell.fgcolor(), color(*top), "{row} {column}");
            assert_eq!(cell.bgcolor(), color(*bottom), "{row} {column}");
            column += 1;
        }
        (row, column) = (row + 1, 0);
    }
    // The colours end with the picture, and the terminal has its modes again.
    let end: Vec<_> = lines[usize::from(row)..]
        .iter()
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(end, ["status 0", " icanon"]);
}

#[test]
fn a_terminal_without_images_shows_half_blocks() {
    let received = on_terminal(
        "v3/t2m --preview",
        "\x1bP>|XTerm(379)\x1b\\\x1b[?64;1;2;6;22c",
    );
    assert_blocks(&received, "249.125 to 302.5625 K");
}

#[test]
fn a_terminal_that_answers_nothing_shows_half_blocks_after_a_second() {
    let start = Instant::now();
    let received = on_terminal("v3/t2m --preview", "");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_blocks(&received, "249.125 to 302.5625 K");
}

#[test]
fn a_terminal_shows_an_image_of_the_protocol_that_it_has() {
    let received = on_terminal(
        "v3/t2m --preview",
        "\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.26.5)\x1b\\\x1b[6;20;10t\x1b[?62;c",
    );
    let text = String::from_utf8(received).unwrap();
    let mut commands = text.split("\x1b_G").skip(1);
    let (keys, mut encoded) = {
        let (keys, data) = commands.next().unwrap().split_once(';').unwrap();
        (keys, data.split('\x1b').next().unwrap().to_owned())
    };
    for command in commands {
        let (_, data) = command.split_once(';').unwrap();
        encoded.push_str(data.split('\x1b').next().unwrap());
    }
    // 1000 x 2320 pixels: half of them are 7 times the width.
    assert_eq!(keys, "a=T,f=100,q=2,c=45,r=12,m=1");
    let (found, width, height) = pixels(&STANDARD.decode(encoded).unwrap());
    assert_eq!((width, height), (7 * 64, 7 * 32));
    for (place, pixel) in view("v3/t2m").iter().enumerate() {
        let (row, column) = (7 * (place / 64) + 3, 7 * (place % 64) + 3);
        assert_eq!(&found[row * 7 * 64 + column], pixel, "{place}");
    }
    assert!(
        text.ends_with("\x1b\\\r\nstatus 0\r\n icanon\r\n"),
        "{text:?}"
    );

    let received = on_terminal("v3/t2m --preview", "\x1bP>|iTerm2 3.4.23\x1b\\\x1b[?62;4c");
    let text = String::from_utf8(received).unwrap();
    let (_, command) = text.split_once("\x1b]1337;File=inline=1;size=").unwrap();
    let (keys, data) = command.split_once(':').unwrap();
    let (data, _) = data.split_once('\x07').unwrap();
    let file = STANDARD.decode(data).unwrap();
    assert_eq!(keys, format!("{};width=48;height=12", file.len()));
    assert_eq!(pixels(&file).1, 6 * 64);

    let received = on_terminal("v3/t2m --preview", "\x1b[6;20;10t\x1b[?63;1;2;4;22c");
    let start = received
        .windows(2)
        .position(|bytes| bytes == b"\x1bP")
        .unwrap();
    let end = received[start..]
        .windows(2)
        .position(|bytes| bytes == b"\x1b\\")
        .unwrap();
    let image = icy_sixel::SixelImage::decode(&received[start..start + end + 2]).unwrap();
    assert_eq!(image.dimensions().0, 7 * 64);
}

#[test]
fn nothing_is_written_where_no_picture_can_be_shown() {
    let refused = run_on("info", "demo:", &["v3/t2m", "--preview"]);
    refused.failed(
        1,
        &[
            "standard output is not a terminal",
            "--preview=blocks",
            "export",
        ],
    );
    assert_eq!(refused.out, "");
    // What is named is written, on 80 columns.
    let blocks = run_on("info", "demo:", &["v3/t2m", "--preview=blocks"]);
    let lines: Vec<_> = blocks
        .ok()
        .out
        .lines()
        .skip_while(|line| !line.starts_with("Preview"))
        .collect();
    let plain = |line: &str| line.chars().filter(|c| *c == '\u{2580}').count();
    assert_eq!(
        lines[3..]
            .iter()
            .map(|line| plain(line))
            .collect::<Vec<_>>(),
        [64; 16]
    );
    output_of(zarrfs().args(["info", "demo:", "--preview", "--json"])).failed(2, &["--json"]);

    let mut command = Command::new("script");
    let info = format!(
        "{} info demo: v3/t2m --preview",
        env!("CARGO_BIN_EXE_zarrfs")
    );
    let dumb = output_of(
        command
            .args(["-qc", &info, "/dev/null"])
            .env("TERM", "dumb"),
    );
    assert!(
        dumb.out
            .starts_with("zarrfs: --preview: TERM names no terminal"),
        "{dumb:?}"
    );
}

#[test]
fn a_group_shows_its_arrays_and_what_has_no_picture_is_an_error() {
    let group = run_on("info", "demo:", &["v3", "--preview=blocks"]);
    let names: Vec<_> = group
        .ok()
        .out
        .lines()
        .filter(|line| line.ends_with(':') && line.starts_with("t2m"))
        .collect();
    assert_eq!(names, ["t2m:", "t2m_sharded:"]);
    for (key, reason) in [
        (
            "v3/lat",
            "v3/lat: no preview: a picture needs two axes, and the array has 1",
        ),
        ("v3/time", "no preview"),
    ] {
        let output = run_on("info", "demo:", &[key, "--preview=blocks"]);
        output.failed(1, &[reason]);
        // The rest of the node is shown.
        assert!(output.out.contains("Views:"), "{output:?}");
    }
    run_on("info", "demo:", &["--preview=blocks"])
        .failed(1, &["/: no preview: ", "no array in it"]);
}

#[test]
fn a_chunk_that_cannot_be_read_is_an_error_and_no_colour() {
    let dir = scratch();
    write(
        dir.path().join("zarr.json"),
        r#"{"zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "crc32c"}]}"#,
    );
    write(dir.path().join("c/0/0"), [0; 20]);
    let output = run_on("info", dir.path(), &["--preview=blocks"]);
    output.failed(1, &["c/0/0", "crc32c"]);
    assert!(!output.out.contains('\u{2580}'), "{output:?}");
}
