//! Lines of a tree: cells in columns of one width for a person at a terminal, in one block after
//! the other so that a source that is far away or has no end is shown while it is walked; cells
//! behind each other for a program that reads them.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::Style;

use super::output::{FAINT, Paint, WRONG, printable};

/// Lines of one block.
const MAX_ROWS: usize = 200;
/// How long a person waits for a block.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// Wider cells stand out and push nothing aside.
const MAX_WIDTH: usize = 48;

/// What is behind a name.
#[derive(Debug)]
pub(super) struct Line {
    /// Of the name.
    pub(super) style: Style,
    pub(super) cells: Vec<String>,
    /// What is wrong or odd.
    pub(super) notes: Vec<String>,
}

impl Line {
    /// A line of one cell.
    pub(super) fn of(style: Style, cell: &str) -> Self {
        Self {
            style,
            cells: vec![cell.to_owned()],
            notes: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Row {
    drawn: String,
    name: String,
    line: Line,
}

/// Lines on their way to the standard output.
#[derive(Debug)]
pub(super) struct Rows {
    is_aligned: bool,
    paint: Paint,
    waiting: Vec<Row>,
    since: Option<Instant>,
}

impl Rows {
    pub(super) fn of_stdout() -> Self {
        Self {
            is_aligned: io::stdout().is_terminal(),
            paint: Paint::of_stdout(),
            waiting: Vec::new(),
            since: None,
        }
    }

    /// Takes a line; `drawn` are the lines of the tree before its name.
    pub(super) fn push(
        &mut self,
        out: &mut impl Write,
        drawn: &str,
        name: &str,
        mut line: Line,
    ) -> io::Result<()> {
        for text in line.cells.iter_mut().chain(&mut line.notes) {
            *text = printable(text).into_owned();
        }
        self.waiting.push(Row {
            drawn: drawn.to_owned(),
            name: printable(name).into_owned(),
            line,
        });
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_full = self.waiting.len() >= MAX_ROWS || since.elapsed() >= MAX_WAIT;
        match is_full || !self.is_aligned {
            true => self.flush(out),
            false => Ok(()),
        }
    }

    /// Writes the lines that are there.
    pub(super) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        self.since = None;
        let widths = match self.is_aligned {
            true => widths(&rows),
            false => Vec::new(),
        };
        for row in &rows {
            self.write(out, row, &widths)?;
        }
        match self.is_aligned {
            true => out.flush(),
            false => Ok(()),
        }
    }

    fn write(&self, out: &mut impl Write, row: &Row, widths: &[usize]) -> io::Result<()> {
        let drawn = self.paint.paint(FAINT, &row.drawn);
        let name = self.paint.paint(row.line.style, &row.name);
        write!(out, "{drawn}{name}")?;
        let mut column = width(&row.drawn) + width(&row.name);
        let mut gap = widths
            .first()
            .map_or(0, |wanted| wanted.saturating_sub(column));
        for (place, cell) in row.line.cells.iter().enumerate() {
            column = width(cell);
            if !cell.is_empty() {
                write!(out, "{:gap$}  {cell}", "")?;
                gap = 0;
            } else if widths.is_empty() {
                continue;
            } else {
                gap += 2;
            }
            // A name alone on its line is of no column.
            let wanted = match row.line.cells.len() {
                1 => 0,
                _ => widths.get(place + 1).copied().unwrap_or(0),
            };
            gap += wanted.saturating_sub(column);
        }
        for note in &row.line.notes {
            write!(out, "  {}", self.paint.paint(WRONG, &format!("! {note}")))?;
        }
        writeln!(out)
    }
}

/// Signs, which is what a terminal shows of most texts.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// How wide the columns of a block are: that of the name with what is drawn before it, and those
/// of the cells of arrays.
fn widths(rows: &[Row]) -> Vec<usize> {
    let mut widths = vec![0];
    for row in rows {
        let cells = match row.line.cells.as_slice() {
            [_] => &[],
            cells => cells,
        };
        let name = width(&row.drawn) + width(&row.name);
        let all = std::iter::once(name).chain(cells.iter().map(|cell| width(cell)));
        for (place, found) in all.enumerate() {
            if widths.len() <= place {
                widths.push(0);
            }
            if let Some(widest) = widths.get_mut(place).filter(|_| found <= MAX_WIDTH) {
                *widest = found.max(*widest);
            }
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(cells: [&str; 3]) -> Line {
        Line {
            style: Style::new(),
            cells: cells.map(str::to_owned).to_vec(),
            notes: vec!["odd".into()],
        }
    }

    fn shown(is_aligned: bool) -> String {
        let mut rows = Rows::of_stdout();
        rows.is_aligned = is_aligned;
        let mut out = Vec::new();
        let group = Line::of(Style::new(), "(group)");
        rows.push(&mut out, "", "root", group).unwrap();
        rows.push(&mut out, "|-- ", "a", array(["<f4", "(1)", "4 B"]))
            .unwrap();
        rows.push(&mut out, "|-- ", "long", array(["|u1", "", "40 KiB"]))
            .unwrap();
        rows.push(&mut out, "|-- ", "x\u{1b}", array(["<f8", "(1, 2)", "1 B"]))
            .unwrap();
        rows.flush(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_terminal_gets_columns_and_a_program_cells() {
        let aligned = [
            "root         (group)",
            "|-- a        <f4  (1)     4 B  ! odd",
            "|-- long     |u1          40 KiB  ! odd",
            r"|-- x\u{1b}  <f8  (1, 2)  1 B  ! odd",
            "",
        ];
        assert_eq!(shown(true), aligned.join("\n"));
        let plain = "root  (group)\n|-- a  <f4  (1)  4 B  ! odd\n|-- long  |u1  40 KiB  ! odd\n\
                     |-- x\\u{1b}  <f8  (1, 2)  1 B  ! odd\n";
        assert_eq!(shown(false), plain);
    }
}
