//! A writer of manual pages with the macros of man(7). Its output is ASCII.

use std::fmt::Write;

/// The largest length of a line that can be broken, in bytes.
const WIDTH: usize = 78;

/// A font of running text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Font {
    /// Ordinary text.
    Roman,
    /// Text that the user types literally.
    Bold,
    /// Placeholders for values, and emphasis.
    Italic,
}

/// A manual page.
#[derive(Debug, Default)]
pub(super) struct Roff {
    page: String,
    /// The running text of the current paragraph.
    text: String,
    fonts: Vec<Font>,
    /// Whether the last line starts a section, after which a paragraph needs no macro.
    is_fresh: bool,
}

impl Roff {
    /// Creates a page with its title line.
    pub(super) fn new(name: &str, section: u8, date: &str, version: &str) -> Self {
        let mut roff = Self::default();
        let title = escaped(&name.to_uppercase());
        roff.line(&format!(
            ".TH {title} {section} {date} \"{version}\" \"zarrfs manual\""
        ));
        // No hyphenation and no justification, because readers copy commands from the text.
        roff.line(".nh");
        roff.line(".ad l");
        roff
    }

    /// Starts a section.
    pub(super) fn section(&mut self, title: &str) {
        self.heading("SH", &title.to_uppercase());
    }

    /// Starts a subsection.
    pub(super) fn subsection(&mut self, title: &str) {
        self.heading("SS", title);
    }

    fn heading(&mut self, macro_name: &str, title: &str) {
        self.flush();
        let title = escaped(title).replace('"', "\\(dq");
        self.line(&format!(".{macro_name} \"{title}\""));
        self.is_fresh = true;
    }

    /// Starts a paragraph.
    pub(super) fn paragraph(&mut self) {
        self.flush();
        if !self.is_fresh {
            self.line(".PP");
        }
        self.is_fresh = true;
    }

    /// Starts a list item with a mark, or continues an item if the mark is empty.
    pub(super) fn item(&mut self, mark: &str) {
        self.flush();
        let mark = match mark {
            "" => "\"\"".into(),
            "*" => "\\(bu".into(),
            mark => escaped(mark),
        };
        self.line(&format!(".IP {mark} 3"));
        self.is_fresh = true;
    }

    /// Starts a paragraph whose tag is the text up to [`Roff::end_tag`].
    pub(super) fn begin_tag(&mut self) {
        self.flush();
    }

    /// Ends the tag. A tag that is longer than a line becomes a paragraph.
    pub(super) fn end_tag(&mut self) {
        if self.text.len() > WIDTH {
            let tag = std::mem::take(&mut self.text);
            self.paragraph();
            self.text = tag;
            self.item("");
        } else {
            let tag = std::mem::take(&mut self.text);
            self.line(".TP");
            self.line(&guarded(tag.trim()));
        }
        self.is_fresh = true;
    }

    /// Breaks the line.
    pub(super) fn line_break(&mut self) {
        self.flush();
        self.line(".br");
    }

    /// Indents all text up to [`Roff::end_indent`].
    pub(super) fn begin_indent(&mut self) {
        self.flush();
        self.line(".RS 3");
        self.is_fresh = true;
    }

    /// Ends the indentation of [`Roff::begin_indent`].
    pub(super) fn end_indent(&mut self) {
        self.flush();
        self.line(".RE");
        self.is_fresh = false;
    }

    /// Appends lines without filling.
    pub(super) fn example(&mut self, lines: &str) {
        self.flush();
        if !self.is_fresh {
            self.line(".PP");
        }
        self.line(".RS 4");
        self.line(".EX");
        for line in lines.trim_end().lines() {
            match line.trim_end() {
                "" => self.line("\\&"),
                line => self.line(&guarded(&escaped(line))),
            }
        }
        self.line(".EE");
        self.line(".RE");
        self.is_fresh = false;
    }

    /// Appends running text.
    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(&escaped(text));
    }

    /// Sets the font until [`Roff::end_font`].
    pub(super) fn begin_font(&mut self, font: Font) {
        self.fonts.push(font);
        self.text.push_str(font.escape());
    }

    /// Restores the previous font.
    pub(super) fn end_font(&mut self) {
        self.fonts.pop();
        let font = self.fonts.last().copied().unwrap_or(Font::Roman);
        self.text.push_str(font.escape());
    }

    /// Appends text in a font.
    pub(super) fn in_font(&mut self, font: Font, text: &str) {
        self.begin_font(font);
        self.text(text);
        self.end_font();
    }

    /// Returns the text of the page.
    pub(super) fn finish(mut self) -> String {
        self.flush();
        self.page
    }

    /// Writes the running text in lines of at most [`WIDTH`] bytes, broken at spaces.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                let full = std::mem::take(&mut line);
                self.line(&full);
            }
            if line.is_empty() {
                line = guarded(word);
            } else {
                line.push(' ');
                line.push_str(word);
            }
        }
        if !line.is_empty() {
            self.line(&line);
            self.is_fresh = false;
        }
    }

    fn line(&mut self, line: &str) {
        self.page.push_str(line);
        self.page.push('\n');
    }
}

impl Font {
    fn escape(self) -> &'static str {
        match self {
            Self::Roman => "\\fR",
            Self::Bold => "\\fB",
            Self::Italic => "\\fI",
        }
    }
}

/// Returns a line that troff does not interpret as a macro.
fn guarded(line: &str) -> String {
    let mut plain = line;
    while let Some(rest) = plain.strip_prefix("\\f") {
        plain = rest.get(1..).unwrap_or_default();
    }
    match plain.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}

/// Returns text in which troff interprets no character and prints ASCII characters unchanged.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '\t' => escaped.push_str("    "),
            c if c.is_ascii() => escaped.push(c),
            // Writing to a String cannot fail.
            c => drop(write!(escaped, "\\[u{:04X}]", u32::from(c))),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_macros_and_lines_are_broken_at_spaces() {
        let mut page = Roff::new("zarrfs-views", 7, "2026-01-01", "zarrfs 1");
        page.section("A \"title\"");
        page.paragraph();
        page.text(".so 'x' \\n a-b ");
        page.in_font(Font::Bold, "--ttl");
        page.text(&" word".repeat(20));
        page.paragraph();
        page.begin_font(Font::Bold);
        page.text(".zarrfs");
        page.end_font();
        page.example("$ ls\n\n.x \u{2192} ~");
        let page = page.finish();
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines[0],
            ".TH ZARRFS\\-VIEWS 7 2026-01-01 \"zarrfs 1\" \"zarrfs manual\""
        );
        assert_eq!(lines[3], ".SH \"A \\(dqTITLE\\(dq\"");
        assert!(lines[4].starts_with("\\&.so \\(aqx\\(aq \\en a\\-b \\fB\\-\\-ttl\\fR word"));
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
        assert!(lines.contains(&"\\&\\fB.zarrfs\\fR"), "{page}");
        assert!(page.ends_with(".RS 4\n.EX\n$ ls\n\\&\n\\&.x \\[u2192] \\(ti\n.EE\n.RE\n"));
    }
}
