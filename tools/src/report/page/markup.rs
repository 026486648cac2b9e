//! Text and tables as markup that is both HTML and well-formed XML.

use std::fmt::{self, Write};

/// A text between tags or in a quoted attribute: whatever it holds, it is shown and not obeyed.
///
/// Characters that markup gives a meaning are escaped. Those that XML does not allow, that nothing shows, or that turn the direction of
/// what stands after them are written as `\u{...}`.
pub(in crate::report) struct Text<'a>(pub(in crate::report) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(character)?,
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                    write!(f, "{}", character.escape_unicode())?;
                }
                '\u{fffe}' | '\u{ffff}' => write!(f, "{}", character.escape_unicode())?,
                _ if character.is_control() => write!(f, "{}", character.escape_unicode())?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// A table with a caption, for a place where it may be higher or wider than there is room: then it is scrolled.
pub(in crate::report) struct Table {
    /// What it holds.
    pub(in crate::report) caption: String,
    /// What its columns are.
    pub(in crate::report) columns: Vec<String>,
    /// Its cells; the first of a row names it.
    pub(in crate::report) rows: Vec<Vec<String>>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caption = Text(&self.caption);
        write!(f, "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table>")?;
        write!(f, "<caption>{caption}</caption>\n<thead><tr>")?;
        for column in &self.columns {
            write!(f, "<th scope=\"col\">{}</th>", Text(column))?;
        }
        f.write_str("</tr></thead>\n<tbody>\n")?;
        for row in &self.rows {
            f.write_str("<tr>")?;
            for (index, cell) in row.iter().enumerate() {
                match index {
                    0 => write!(f, "<th scope=\"row\">{}</th>", Text(cell))?,
                    _ => write!(f, "<td>{}</td>", Text(cell))?,
                }
            }
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody></table></div>\n")
    }
}

/// Names and what each says, in as many columns as there is room for.
pub(in crate::report) fn list<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pair = |(name, says): (&str, String)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", Text(name), Text(&says));
    let pairs: String = pairs.into_iter().map(pair).collect();
    format!("<dl>\n{pairs}</dl>\n")
}

/// A figure: a drawing, what it shows, and its numbers beside it.
pub(in crate::report) fn figure(title: &str, about: &str, legend: &[&str], drawing: &str, numbers: &str) -> String {
    let (title, about) = (Text(title), Text(about));
    let name = |name: &&str| format!("<span class=\"{name}\">{name}</span>");
    let legend = match legend {
        [] => String::new(),
        names => format!("<p class=\"legend\">{}</p>\n", names.iter().map(name).collect::<String>()),
    };
    format!(
        "<section class=\"card\">\n<h2>{title}</h2>\n<p class=\"about\">{about}</p>\n<div class=\"beside\">\n\
         <figure>\n{legend}{drawing}</figure>\n<div class=\"numbers\">\n{numbers}</div>\n</div>\n</section>\n"
    )
}

/// A figure of which nothing can be drawn, and why.
pub(in crate::report) fn no_figure(title: &str, why: &str) -> String {
    let (title, why) = (Text(title), Text(why));
    format!("<section class=\"card\">\n<h2>{title}</h2>\n<p class=\"none\">{why}</p>\n</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_as_it_is_and_does_nothing() {
        let shown = |text| Text(text).to_string();
        assert_eq!(shown("<script>alert('1')</script>"), "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;");
        assert_eq!(shown("\" onload=\"x&amp;"), "&quot; onload=&quot;x&amp;amp;");
        assert_eq!(shown("a\u{0}\u{1b}[31m\r\u{85}"), "a\\u{0}\\u{1b}[31m\\u{d}\\u{85}");
        assert_eq!(shown("\u{202e}gpj.exe\u{ffff}"), "\\u{202e}gpj.exe\\u{ffff}");
        assert_eq!(shown("device ↔ host µ 中\n"), "device ↔ host µ 中\n");
    }
}
