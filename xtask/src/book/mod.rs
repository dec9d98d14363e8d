//! The book: checks that its pages are listed and tested and that its links work, and then builds
//! it.

mod links;

use crate::report::{self, Failure, Finding, Findings};
use crate::workspace::{Workspace, output, status};

const PAGES: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";
/// The file that turns the snippets of the pages into tests.
const TESTS: &str = "crates/lab/src/book.rs";
const BUILDER: &str = "mdbook";

/// The pages about a part of the library. Each must have the headings below.
const PARTS: &str = "docs/workqueue.md docs/mpscq.md docs/topology.md docs/mailbox.md docs/rcu.md \
    docs/percpu.md docs/wake.md docs/observing.md docs/deferral.md";
const SECTIONS: &[&str] = &["Problem", "Picture", "States", "Traps", "How it was proved"];

pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let mut files = workspace.files()?;
    let texts = workspace.texts(|file| file.ends_with(".md"))?;
    let pages: Vec<_> = texts.iter().map(|(file, text)| links::Page::new(file, text)).collect();
    // Links may lead to folders.
    let above = |file: &String| file.match_indices('/').map(|it| file[..it.0].into()).collect();
    let folders: Vec<Vec<String>> = files.iter().map(above).collect();
    files.extend(folders.into_iter().flatten());
    files.sort_unstable();
    files.dedup();
    let mut broken = links::broken(&pages, &files);
    broken.extend(unlisted(&pages));
    broken.extend(untested(&pages, &workspace.text(TESTS)?.unwrap_or_default()));
    for (file, text) in &texts {
        broken.extend(hidden(text).into_iter().map(|line| {
            let rule = "hosting sites show hidden lines: write the snippet without them";
            Finding::new(file, line, rule)
        }));
        let is_part = PARTS.split(' ').any(|part| part == file);
        let sections = if is_part { SECTIONS } else { &[] };
        for head in sections.iter().filter(|head| !has_section(text, head)) {
            let rule = format!("the page lacks the section `{head}`");
            broken.push(Finding::new(file, 0, rule));
        }
    }
    if broken.is_empty() && !builds(workspace)? {
        broken.push(Finding::new("book.toml", 0, "the book cannot be built"));
    }
    let count: usize = pages.iter().map(|page| page.links.len()).sum();
    Ok(Findings { broken, looked_at: format!("{count} links of {} pages", pages.len()) })
}

/// Returns the lines of Rust snippets that rustdoc would hide.
fn hidden(text: &str) -> Vec<u32> {
    let mut is_rust = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(info) = line.strip_prefix("```") {
            is_rust = !is_rust && info.starts_with("rust");
        } else if is_rust && (line == "#" || line.starts_with("# ")) {
            found.push(number);
        }
    }
    found
}

fn has_section(text: &str, head: &str) -> bool {
    let mut heads = text.lines().filter_map(|line| line.strip_prefix("## "));
    heads.any(|line| line.ends_with(head) || line.starts_with(head))
}

/// Finds pages that the summary omits, and links in pages to files outside the book.
fn unlisted(pages: &[links::Page]) -> Vec<Finding> {
    let Some(summary) = pages.iter().find(|page| page.file == SUMMARY) else {
        return vec![Finding::new(SUMMARY, 0, "missing: the list of the book's pages")];
    };
    let mut found = Vec::new();
    for page in pages.iter().filter(|page| page.file.starts_with(PAGES)) {
        if page.file != SUMMARY && !summary.leads_to(&page.file) {
            let rule = format!("not in the book: list it in {SUMMARY}");
            found.push(Finding::new(&page.file, 0, rule));
        }
        for link in &page.links {
            if link.file.as_ref().is_some_and(|file| !file.starts_with(PAGES)) {
                let rule =
                    format!("link `{}` leaves the book: write the path without a link", link.text);
                found.push(Finding::new(&page.file, link.line, rule));
            }
        }
    }
    found
}

fn untested(pages: &[links::Page], tests: &str) -> Vec<Finding> {
    let untested = pages.iter().filter(|page| page.file != SUMMARY).filter_map(|page| {
        let name = format!("\"{}\"", page.file.strip_prefix(PAGES)?);
        let rule = format!("its snippets are not tested: add {name} to {TESTS}");
        (!tests.contains(&name)).then(|| Finding::new(&page.file, 0, rule))
    });
    untested.collect()
}

/// Builds the book. Returns `true` if this succeeds, or if mdbook is missing.
fn builds(workspace: &Workspace) -> Result<bool, Failure> {
    if output(workspace.command(BUILDER).arg("--version")).is_err() {
        let hint = "mdbook is missing; `cargo install mdbook --locked` installs it";
        report::talk(&format!("book: not built: {hint}\n"));
        return Ok(true);
    }
    let folder = workspace.metadata()?.target_directory.join("book");
    let mut command = workspace.command(BUILDER);
    command.arg("build").arg("--dest-dir").arg(&folder);
    let is_built = status(&mut command)?.success();
    if is_built {
        report::data(&format!("book: built, see {}\n", folder.join("index.html").display()));
    }
    Ok(is_built)
}

#[cfg(test)]
mod tests {
    use links::Page;

    use super::*;

    #[test]
    fn hidden_lines_of_snippets_are_found() {
        let text =
            "# Head\n```rust\nfine\n# hidden\n#[attribute]\n```\n# Head\n```toml\n# comment\n```\n";
        assert_eq!(hidden(text), [4]);
        assert!(has_section("## Problem\n", "Problem") && !has_section("Problem", "Problem"));
    }

    #[test]
    fn snippets_of_every_page_are_tests() {
        let pages =
            [Page::new(SUMMARY, ""), Page::new("docs/a.md", ""), Page::new("docs/b.md", "")];
        let found = untested(&pages, "pages! { b \"b.md\", }");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].file, "docs/a.md");
    }

    #[test]
    fn a_page_is_listed_and_stays_in_the_book() {
        let pages = [
            Page::new(SUMMARY, "- [A](a.md)"),
            Page::new("docs/a.md", "[out](../README.md) [in](b.md)"),
            Page::new("docs/b.md", ""),
            Page::new("README.md", "[in](docs/a.md)"),
        ];
        let found: Vec<_> = unlisted(&pages).into_iter().map(|it| (it.file, it.line)).collect();
        assert_eq!(found, [("docs/a.md".into(), 1), ("docs/b.md".into(), 0)]);
    }
}
