//! Pictures as bytes for a terminal: the protocols of kitty, iTerm2 and sixel, and half blocks.

use std::fmt::Write;

use anstyle::{Color, RgbColor, Style};
use anstyle_lossy::rgb_to_xterm;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::Failure;
use super::picture::Picture;
use super::terminal::{Protocol, Terminal};

/// The largest side of an image, in pixels, whatever a terminal says of its size.
const MAX_SIDE: u32 = 4096;
/// The rows of a terminal that a picture leaves to captions and to the next prompt.
const OTHER_ROWS: u32 = 4;
/// The largest size of base64 in one command of the protocol of kitty, in bytes.
const KITTY_BYTES: usize = 4096;
/// Pixels with less alpha show the background.
const MIN_ALPHA: u8 = 128;
/// The size of a cell of half blocks, in pixels.
const HALF_BLOCKS: (u32, u32) = (1, 2);

/// Returns what shows a picture in `1 / part` of the width and the height of a terminal. The cursor is then at the start
/// of the line below.
///
/// # Errors
/// If the picture cannot be encoded.
pub(super) fn image(terminal: &Terminal, picture: &Picture, part: u32) -> Result<Vec<u8>, Failure> {
    let cell = match terminal.protocol {
        Protocol::Blocks => HALF_BLOCKS,
        _ => terminal.cell,
    };
    let space =
        |cells: u32, pixels: u32| (cells / part).max(1).saturating_mul(pixels).min(MAX_SIDE);
    let rows = terminal.rows.saturating_sub(OTHER_ROWS);
    let (width, height) = fit(
        (picture.width, picture.height),
        (space(terminal.columns, cell.0), space(rows, cell.1)),
    );
    let picture = picture.resized(width, height);
    let cells = (width.div_ceil(cell.0), height.div_ceil(cell.1));
    Ok(match terminal.protocol {
        Protocol::Kitty => kitty(&picture.to_png()?, cells),
        Protocol::Iterm => iterm(&picture.to_png()?, cells),
        Protocol::Sixel => sixel(&picture)?,
        Protocol::Blocks => blocks(&picture, terminal.has_true_color)?.into_bytes(),
    })
}

/// Returns the size of a picture in a space: smaller if it does not fit, and a whole number of times larger while it
/// fills at most half of the space.
fn fit((width, height): (u32, u32), (most_width, most_height): (u32, u32)) -> (u32, u32) {
    let (width, height) = (width.max(1), height.max(1));
    if width <= most_width && height <= most_height {
        let times = (most_width / 2 / width)
            .min(most_height / 2 / height)
            .max(1);
        return (width * times, height * times);
    }
    let scaled = |side: u32, numerator: u32, denominator: u32| {
        let side = u64::from(side) * u64::from(numerator) / u64::from(denominator);
        u32::try_from(side).unwrap_or(MAX_SIDE).max(1)
    };
    // The side that has to shrink more.
    match u64::from(width) * u64::from(most_height) >= u64::from(height) * u64::from(most_width) {
        true => (most_width, scaled(height, most_width, width)),
        false => (scaled(width, most_height, height), most_height),
    }
}

/// Returns commands that transmit a file and show it: <https://sw.kovidgoyal.net/kitty/graphics-protocol/>.
fn kitty(file: &[u8], (columns, rows): (u32, u32)) -> Vec<u8> {
    let encoded = STANDARD.encode(file);
    let mut commands = Vec::new();
    // Without answers (q), which the shell would take for input.
    let mut keys = format!("a=T,f=100,q=2,c={columns},r={rows},");
    let mut parts = encoded.as_bytes().chunks(KITTY_BYTES).peekable();
    while let Some(part) = parts.next() {
        let has_more = u8::from(parts.peek().is_some());
        commands.extend(format!("\x1b_G{keys}m={has_more};").as_bytes());
        commands.extend(part);
        commands.extend(b"\x1b\\");
        keys.clear();
    }
    commands.push(b'\n');
    commands
}

/// Returns the command that shows a file: <https://iterm2.com/documentation-images.html>.
fn iterm(file: &[u8], (columns, rows): (u32, u32)) -> Vec<u8> {
    let size = file.len();
    let encoded = STANDARD.encode(file);
    let keys = format!("inline=1;size={size};width={columns};height={rows}");
    format!("\x1b]1337;File={keys}:{encoded}\x07\n").into_bytes()
}

#[cfg(feature = "sixel")]
fn sixel(picture: &Picture) -> Result<Vec<u8>, Failure> {
    let pixels = picture.pixels.as_flattened().to_vec();
    let (width, height) = (picture.width as usize, picture.height as usize);
    let image = icy_sixel::SixelImage::try_from_rgba(pixels, width, height)?;
    let mut encoded = image.encode()?.into_bytes();
    encoded.push(b'\n');
    Ok(encoded)
}

/// Refuses, as [`check`](super::check) has before anything was read.
#[cfg(not(feature = "sixel"))]
fn sixel(_: &Picture) -> Result<Vec<u8>, Failure> {
    Err("built without the feature `sixel`".into())
}

/// Returns lines of half blocks, whose colours are two pixels each.
fn blocks(picture: &Picture, has_true_color: bool) -> Result<String, std::fmt::Error> {
    let color = |column, row| {
        let [red, green, blue, alpha] = picture.pixel(column, row);
        let color = RgbColor(red, green, blue);
        (alpha >= MIN_ALPHA).then(|| match has_true_color {
            true => Color::Rgb(color),
            false => Color::Ansi256(rgb_to_xterm(color)),
        })
    };
    let mut lines = String::new();
    for row in (0..picture.height).step_by(2) {
        let mut last = Style::new();
        for column in 0..picture.width {
            let (top, bottom) = (color(column, row), color(column, row + 1));
            let (style, block) = match top {
                Some(_) => (Style::new().fg_color(top).bg_color(bottom), '\u{2580}'),
                None if bottom.is_some() => (Style::new().fg_color(bottom), '\u{2584}'),
                None => (Style::new(), ' '),
            };
            if style != last {
                write!(lines, "{last:#}{style}")?;
                last = style;
            }
            lines.push(block);
        }
        writeln!(lines, "{last:#}")?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_fit_and_keep_their_shape() {
        for (picture, space, fitted) in [
            ((16, 32), (80, 40), (16, 32)),
            ((10, 5), (80, 40), (40, 20)),
            ((1024, 512), (80, 40), (80, 40)),
            ((512, 1024), (80, 40), (20, 40)),
            ((1000, 1), (80, 40), (80, 1)),
            ((1, 1000), (80, 40), (1, 40)),
            ((81, 40), (80, 40), (80, 39)),
        ] {
            assert_eq!(fit(picture, space), fitted, "{picture:?}");
        }
    }

    fn picture() -> Picture {
        let (red, blue, none) = ([255, 0, 0, 255], [0, 0, 255, 255], [0, 0, 0, 0]);
        Picture {
            width: 3,
            height: 3,
            pixels: [red, red, none, blue, none, red, red, red, none].to_vec(),
            captions: Vec::new(),
        }
    }

    #[test]
    fn half_blocks_have_two_pixels_and_the_background_of_the_terminal() {
        let lines = blocks(&picture(), true).unwrap();
        let (red, blue) = ("38;2;255;0;0", "48;2;0;0;255");
        let expected = format!(
            "\x1b[{red}m\x1b[{blue}m\u{2580}\x1b[0m\x1b[{red}m\u{2580}\x1b[0m\x1b[{red}m\u{2584}\x1b[0m\n\
             \x1b[{red}m\u{2580}\u{2580}\x1b[0m \n"
        );
        // The same style is not repeated.
        let once = expected.replacen(
            &format!("\u{2580}\x1b[0m\x1b[{red}m\u{2584}"),
            "\u{2580}\u{2584}",
            1,
        );
        assert_eq!(lines, once);
        let lines = blocks(&picture(), false).unwrap();
        assert!(
            lines.starts_with("\x1b[38;5;196m\x1b[48;5;21m\u{2580}"),
            "{lines:?}"
        );
    }

    #[test]
    fn commands_of_kitty_are_short_and_not_answered() {
        let file = vec![7; 10_000];
        let commands = String::from_utf8(kitty(&file, (30, 10))).unwrap();
        let parts: Vec<_> = commands.trim_end().split_terminator("\x1b\\").collect();
        assert_eq!(parts.len(), 4);
        let mut encoded = String::new();
        for (place, part) in parts.iter().enumerate() {
            let (keys, data) = part
                .strip_prefix("\x1b_G")
                .unwrap()
                .split_once(';')
                .unwrap();
            let expected = match place {
                0 => "a=T,f=100,q=2,c=30,r=10,m=1",
                3 => "m=0",
                _ => "m=1",
            };
            assert_eq!(keys, expected);
            assert!(data.len() <= KITTY_BYTES);
            encoded.push_str(data);
        }
        assert_eq!(STANDARD.decode(encoded).unwrap(), file);
    }

    #[cfg(feature = "sixel")]
    #[test]
    fn sixel_has_the_pixels() {
        let encoded = sixel(&picture()).unwrap();
        let image = icy_sixel::SixelImage::decode(encoded.trim_ascii_end()).unwrap();
        // Bands of sixels have six rows.
        assert_eq!(image.dimensions(), (3, 6));
        let (found, _) = image.pixels.as_chunks::<4>();
        for (found, expected) in found.iter().zip(picture().pixels) {
            assert_eq!(found[3] >= MIN_ALPHA, expected[3] >= MIN_ALPHA);
            if expected[3] > 0 {
                assert_eq!(found[..3], expected[..3]);
            }
        }
    }
}
