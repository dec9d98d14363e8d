//! The rules about what code names.

use super::rules;
use crate::report::Finding;
use crate::source::{Mention, Outline};

/// A source file of a crate.
pub struct File {
    /// Its path from the root.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// What it names.
    pub outline: Outline,
}

/// Where a file stands among crates and modules.
#[derive(Debug, PartialEq)]
pub struct Place {
    /// The folder of its crate under `crates/`.
    krate: String,
    /// Its module, as a path from the crate's root.
    module: Vec<String>,
}

impl Place {
    /// Returns the place of `crates/CRATE/src/…`; nothing for any other file.
    pub fn of(name: &str) -> Option<Self> {
        let (krate, path) = name.strip_prefix("crates/")?.split_once("/src/")?;
        let mut module: Vec<String> = path
            .strip_suffix(".rs")?
            .split('/')
            .map(str::to_string)
            .collect();
        if matches!(module.last()?.as_str(), "mod" | "lib" | "main") {
            module.pop();
        }
        Some(Self {
            krate: krate.to_string(),
            module,
        })
    }

    /// Returns the folder of its crate.
    pub fn krate(&self) -> &str {
        &self.krate
    }

    /// Returns its module.
    pub fn module(&self) -> &[String] {
        &self.module
    }
}

/// Finds every mention in `files` that breaks a rule.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut broken = Vec::new();
    for file in files {
        let file_in_test = is_test_file(file, files);
        for mention in &file.outline.mentions {
            let in_test = file_in_test || mention.in_test;
            let rules = [
                crate_rule(file, mention),
                folder_rule(file, mention),
                door_rule(file, mention, in_test),
            ];
            for rule in rules.into_iter().flatten() {
                broken.push(Finding::new(&file.name, mention.line, rule));
            }
        }
        broken.extend(unknown_folder(file));
    }
    broken.dedup();
    broken
}

/// Returns `true` if another file declares this one (or a module above it) as test code.
pub fn is_test_file(file: &File, files: &[File]) -> bool {
    files
        .iter()
        .filter(|parent| parent.place.krate == file.place.krate)
        .any(|parent| {
            parent.outline.test_modules.iter().any(|below| {
                let module = [parent.place.module.as_slice(), below].concat();
                file.place.module.starts_with(&module)
            })
        })
}

fn crate_rule(file: &File, mention: &Mention) -> Option<String> {
    let own = &file.place.krate;
    let named = mention.segments.first()?;
    let other = rules::our_crate(named)?;
    // `lab` is the program `afterwork`; nothing else may name a crate beside or above itself.
    let is_up = other != own && rules::rank(other) >= rules::rank(own);
    (is_up && !binds(file, named))
        .then(|| format!("`{own}` names `{named}`, which is not below it"))
}

/// Returns `true` if `name` is something that the file itself imports from elsewhere.
fn binds(file: &File, name: &str) -> bool {
    file.outline.mentions.iter().any(|mention| {
        mention.imported
            && mention.segments.len() > 1
            && mention.segments.last().is_some_and(|last| last == name)
    })
}

fn folder_rule(file: &File, mention: &Mention) -> Option<String> {
    let krate = &file.place.krate;
    let own = folder(file)?;
    let target = absolute(&file.place.module, mention)?;
    if let Some(named) = rules::folder(krate, &target) {
        let allowed = rules::folder_may_name(krate, own, named);
        return (!allowed).then(|| format!("`{own}` names `{named}`, which is not below it"));
    }
    let named = target.first()?;
    // A macro is found at the root wherever it stands.
    let hides = mention.imported || target.len() > 1 || named.starts_with(char::is_uppercase);
    hides.then(|| {
        format!("`{own}` reaches `{named}` through the crate's root: name the folder it lives in")
    })
}

fn door_rule(file: &File, mention: &Mention, in_test: bool) -> Option<String> {
    let own = &file.place.krate;
    if !rules::is_above_sync(own) {
        return None;
    }
    let door = rules::door(&mention.segments, mention.imported)?;
    let path = mention.segments.join("::");
    let bare_macro = mention.segments.len() == 1 && !mention.imported;
    let free = (in_test && door.free_in_tests) || (bare_macro && binds(file, &path));
    (!free).then(|| {
        format!(
            "`{own}` names `{path}` past `sync`: name {} instead",
            door.instead
        )
    })
}

fn unknown_folder(file: &File) -> Option<Finding> {
    let top = file.place.module.first()?;
    let rule = format!("`{top}` has no layer: give it a row in xtask/src/layers/rules.rs");
    let is_unknown = rules::has_folders(&file.place.krate) && folder(file).is_none();
    is_unknown.then(|| Finding::new(&file.name, 0, rule))
}

fn folder(file: &File) -> Option<&'static str> {
    rules::folder(&file.place.krate, &file.place.module)
}

/// Returns what `mention` names as a path from the crate's root; nothing when it leaves the crate.
pub fn absolute(module: &[String], mention: &Mention) -> Option<Vec<String>> {
    let mut here = [module, &mention.modules].concat();
    let mut rest = mention.segments.as_slice();
    match rest.first()?.as_str() {
        "crate" => {
            here.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                here.pop();
                rest = &rest[1..];
            }
        }
        _ => return None,
    }
    here.extend_from_slice(rest);
    // `use super::*` one level up names the folder itself, and at the root nothing in particular.
    (!here.is_empty()).then_some(here)
}

#[cfg(test)]
mod tests;
