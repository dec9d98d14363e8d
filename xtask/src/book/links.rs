//! Checks the links of Markdown pages: the target file must exist, and must contain the heading.
//!
//! External links are not checked.

use std::collections::BTreeSet;

use crate::report::Finding;

#[derive(Debug)]
pub struct Page {
    pub file: String,
    pub links: Vec<Link>,
    /// The names that a link may have after `#`.
    anchors: BTreeSet<String>,
}

#[derive(Debug, PartialEq)]
pub struct Link {
    pub line: u32,
    pub text: String,
    /// The path of the target from the root of the workspace, or `None` if the target is outside
    /// the workspace.
    pub file: Option<String>,
    anchor: Option<String>,
}

impl Page {
    pub fn new(file: &str, text: &str) -> Self {
        let mut page = Self { file: file.into(), links: Vec::new(), anchors: BTreeSet::new() };
        for (line, text) in prose(text) {
            if let Some(heading) = heading(text) {
                page.add_anchor(&slug(heading));
            }
            let targets = targets(text).into_iter();
            page.links.extend(targets.filter_map(|target| {
                let outside = target.contains("://") || target.starts_with("mailto:");
                (!outside).then(|| Link::new(file, line, target))
            }));
        }
        page
    }

    pub fn leads_to(&self, file: &str) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.file.as_deref() == Some(file))
    }

    /// Adds an anchor. If several headings have the same words, the later ones get a number as a
    /// suffix.
    fn add_anchor(&mut self, slug: &str) {
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let mut names = std::iter::once(slug.to_string()).chain(numbered);
        let new = names.find(|name| !self.anchors.contains(name));
        self.anchors.extend(new);
    }
}

impl Link {
    fn new(from: &str, line: u32, target: &str) -> Self {
        let (path, anchor) =
            target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        let file = if path.is_empty() { Some(from.to_string()) } else { join(from, path) };
        Self { line, text: target.into(), file, anchor: anchor.map(str::to_string) }
    }
}

pub fn broken(pages: &[Page], files: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for page in pages {
        for link in &page.links {
            let mut say = |what: &str| {
                let rule = format!("broken link `{}`: {what}", link.text);
                found.push(Finding::new(&page.file, link.line, rule));
            };
            let file = link.file.as_ref().filter(|file| files.contains(file));
            let Some(file) = file else {
                say("no such file");
                continue;
            };
            let target = pages.iter().find(|page| page.file == *file);
            if let Some((anchor, target)) = link.anchor.as_ref().zip(target)
                && !target.anchors.contains(anchor)
            {
                say("the page has no such heading");
            }
        }
    }
    found
}

/// Returns the lines outside fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn heading(line: &str) -> Option<&str> {
    let words = line.trim_start_matches('#');
    let level = line.len() - words.len();
    ((1..=6).contains(&level) && words.starts_with(' ')).then(|| words.trim())
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' | '-' => Some('-'),
        letter if letter.is_alphanumeric() || letter == '_' => Some(letter),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

fn targets(line: &str) -> Vec<&str> {
    // Every second part is between backticks. No target in this repository contains a backtick.
    let mut targets = Vec::new();
    let mut at = 0;
    let mut in_code = false;
    for (index, letter) in line.char_indices() {
        in_code ^= letter == '`';
        if !in_code && index >= at && line[index..].starts_with("](") {
            let rest = &line[index + 2..];
            if let Some(end) = rest.find(')') {
                targets.push(rest[..end].split(' ').next().unwrap_or_default());
                at = index + 2 + end;
            }
        }
    }
    targets
}

/// Appends a relative path to the folder of a file. Returns `None` if the result is outside the
/// workspace.
fn join(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: &[Finding]) -> Vec<u32> {
        found.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let pages = [
            Page::new(
                "docs/a.md",
                "# One\n[b](b.md)\n[b](b.md#the-way-it-is)\n[no](c.md)\n[no](b.md#other)\n[up](../src)\n[here](#one)",
            ),
            Page::new("docs/b.md", "## The *way* it is?"),
        ];
        let files = ["docs/a.md", "docs/b.md", "src"].map(String::from);
        assert_eq!(lines(&broken(&pages, &files)), [4, 5]);
    }

    #[test]
    fn code_and_network_links_are_ignored() {
        let text = "```\n[a](b)\n```\n`[a](b)` [c](https://d.e/f) [g](mailto:h) ![i](j.svg \"k\")";
        let page = Page::new("a.md", text);
        let names: Vec<_> = page.links.iter().map(|link| link.text.as_str()).collect();
        assert_eq!(names, ["j.svg"]);
    }

    #[test]
    fn headings_of_the_same_words_are_numbered() {
        let page = Page::new("a.md", "# Costs\n# Costs\n# Why `a_b` isn't 2-way");
        let anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["costs", "costs-1", "why-a_b-isnt-2-way"]);
    }

    #[test]
    fn path_outside_the_workspace_is_a_broken_link() {
        assert_eq!(join("docs/a.md", "../b/./c"), Some("b/c".into()));
        assert_eq!(join("a.md", "../b"), None);
    }
}
