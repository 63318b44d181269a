//! Conversion of manual pages from Markdown to roff: headings, paragraphs, lists, code, tables and links.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

use super::roff::{Font, Roff};

/// Appends Markdown to a page, without the title, which is the first-level heading. Returns the
/// topics to which it links.
pub(super) fn append(page: &mut Roff, markdown: &str) -> Vec<String> {
    let parser = Parser::new_ext(markdown, Options::ENABLE_TABLES);
    let mut converter = Converter {
        page,
        lists: Vec::new(),
        heading: None,
        code: None,
        link: None,
        table: Table::default(),
        topics: Vec::new(),
    };
    parser.for_each(|event| converter.event(event));
    converter.topics
}

/// The state of a conversion.
#[derive(Debug)]
struct Converter<'a> {
    page: &'a mut Roff,
    /// The next item number of each open list; `None` for lists without numbers.
    lists: Vec<Option<u64>>,
    /// The text of the open heading.
    heading: Option<String>,
    /// The lines of the open code block.
    code: Option<String>,
    /// The URL of the open link.
    link: Option<String>,
    table: Table,
    topics: Vec<String>,
}

/// A table, whose first column becomes the tags of paragraphs. If it has more than two columns, the
/// other cells begin with their column headings.
#[derive(Debug, Default)]
struct Table {
    headings: Vec<String>,
    is_head: bool,
    column: usize,
    /// Whether a cell of the row already has text after its tag.
    has_text: bool,
}

impl Converter<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text, None),
            Event::Code(text) => self.text(&text, Some(Font::Bold)),
            Event::SoftBreak => self.text(" ", None),
            Event::HardBreak => self.page.line_break(),
            // HTML occurs only as comments and anchors; the other events belong to unused extensions.
            _ => {}
        }
    }

    fn text(&mut self, text: &str, font: Option<Font>) {
        if let Some(title) = &mut self.heading {
            title.push_str(text);
        } else if let Some(code) = &mut self.code {
            code.push_str(text);
        } else if self.table.is_head {
            if let Some(heading) = self.table.headings.last_mut() {
                heading.push_str(text);
            }
        } else {
            self.begin_cell_text();
            match font {
                Some(font) => self.page.in_font(font, text),
                None => self.page.text(text),
            }
        }
    }

    /// Writes the column heading of a cell before its first text.
    fn begin_cell_text(&mut self) {
        let table = &mut self.table;
        if table.column < 2 || std::mem::replace(&mut table.has_text, true) {
            return;
        }
        if table.headings.len() > 2 {
            if table.column > 2 {
                self.page.line_break();
            }
            let heading = table.headings.get(table.column - 1);
            if let Some(heading) = heading.filter(|heading| !heading.is_empty()) {
                self.page.in_font(Font::Italic, heading);
                self.page.text(": ");
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } => self.heading = Some(String::new()),
            Tag::Paragraph if self.lists.is_empty() => self.page.paragraph(),
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                if !self.lists.is_empty() {
                    self.page.begin_indent();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number = number.saturating_add(1);
                        format!("{}.", number.saturating_sub(1))
                    }
                    _ => "*".to_owned(),
                };
                self.page.item(&mark);
            }
            Tag::Emphasis | Tag::Strong if self.is_plain() => {}
            Tag::Emphasis => self.page.begin_font(Font::Italic),
            Tag::Strong => self.page.begin_font(Font::Bold),
            Tag::Link {
                link_type,
                dest_url,
                ..
            } if link_type != LinkType::Autolink => self.link = Some(dest_url.into_string()),
            Tag::Table(_) => self.table = Table::default(),
            Tag::TableHead => self.table.is_head = true,
            Tag::TableRow => self.table.column = 0,
            Tag::TableCell if self.table.is_head => self.table.headings.push(String::new()),
            Tag::TableCell => {
                self.table.column = self.table.column.saturating_add(1);
                self.table.has_text = false;
                if self.table.column == 1 {
                    self.page.begin_tag();
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let title = self.heading.take().unwrap_or_default();
                match level {
                    HeadingLevel::H1 => {}
                    HeadingLevel::H2 => self.page.section(&title),
                    _ => self.page.subsection(&title),
                }
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                self.page.example(&code);
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.page.end_indent();
                }
            }
            TagEnd::Emphasis | TagEnd::Strong if self.is_plain() => {}
            TagEnd::Emphasis | TagEnd::Strong => self.page.end_font(),
            TagEnd::Link => self.end_link(),
            TagEnd::TableHead => self.table.is_head = false,
            TagEnd::TableCell if self.table.column == 1 => self.page.end_tag(),
            TagEnd::Table => self.table = Table::default(),
            _ => {}
        }
    }

    /// Returns whether the text is part of a heading, which has no fonts.
    fn is_plain(&self) -> bool {
        self.heading.is_some() || self.table.is_head
    }

    fn end_link(&mut self) {
        let url = self.link.take().unwrap_or_default();
        if self.is_plain() {
            return;
        }
        if url.contains("://") {
            self.page.text(&format!(" <{url}>"));
        } else if let Some((topic, _)) = url.split_once(".md")
            && !topic.contains('/')
        {
            self.page.text(" (");
            self.page.in_font(Font::Bold, &format!("zarrfs-{topic}"));
            self.page.text("(7))");
            self.topics.push(topic.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(markdown: &str) -> (String, Vec<String>) {
        let mut page = Roff::new("x", 7, "2026-01-01", "x");
        let topics = append(&mut page, markdown);
        let page = page.finish();
        let text = page.split_once(".ad l\n").unwrap().1.to_owned();
        (text, topics)
    }

    #[test]
    fn each_construct_of_the_manual_becomes_a_macro() {
        let (text, topics) = converted(
            "# Title\n\n```\nzarrfs x\n```\n\nText with `code`, *this* and **that**.\n\n## Second `part`\n\n\
             - one\n- two,\n  see [views](views.md#x)\n\n1. first\n\nLast <https://x.org>, [y](https://y.org).\n",
        );
        let wanted = ".PP\n.RS 4\n.EX\nzarrfs x\n.EE\n.RE\n.PP\nText with \\fBcode\\fR, \\fIthis\\fR and \\fBthat\\fR.\n\
             .SH \"SECOND PART\"\n.IP \\(bu 3\none\n.IP \\(bu 3\ntwo, see views (\\fBzarrfs\\-views\\fR(7))\n\
             .IP 1. 3\nfirst\n.PP\nLast https://x.org, y <https://y.org>.\n";
        assert_eq!(text, wanted);
        assert_eq!(topics, ["views"]);
    }

    #[test]
    fn a_table_becomes_paragraphs_with_tags() {
        let (text, _) = converted("| a | b |\n|---|---|\n| `-x` \\| `-y` | text |\n");
        assert_eq!(text, ".TP\n\\fB\\-x\\fR | \\fB\\-y\\fR\ntext\n");
        let (text, _) = converted("| a | b | *c* |\n|---|---|---|\n| 1 | 2 | 3 |\n| 4 | | 6 |\n");
        let wanted = ".TP\n1\n\\fIb\\fR: 2\n.br\n\\fIc\\fR: 3\n.TP\n4\n.br\n\\fIc\\fR: 6\n";
        assert_eq!(text, wanted);
    }
}
