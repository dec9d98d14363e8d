//! The parts that every page has: head, style and raw numbers.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::output::record::{self, Line};

const STYLE: &str = include_str!("style.css");

/// Wraps `body` in a page that loads no external resources.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // This forbids loading or running anything, even if the names in a run contain
                // HTML.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// Returns a link that downloads the lines as the original file.
pub fn download<'a>(name: &str, lines: impl IntoIterator<Item = &'a Line>) -> Markup {
    let mut data = String::from("data:application/x-ndjson;charset=utf-8,");
    for line in lines {
        push_encoded(&mut data, &record::line(line));
        data.push_str("%0A");
    }
    html! { a download=(name) href=(data) { "Download " (name) } }
}

fn push_encoded(url: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b',' => {
                url.push(char::from(byte));
            }
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_end_a_link_are_encoded() {
        let mut url = String::new();
        push_encoded(&mut url, "a\"b<c>#%µ");
        assert_eq!(url, "a%22b%3Cc%3E%23%25%C2%B5");
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let text = page("<script>", &html! { p { "<script>" } });
        assert!(!text.contains("<script>"), "{text}");
    }
}
