//! Checks that every dependency may be used under a licence that this project accepts.

use std::collections::BTreeMap;

use spdx::{Expression, ParseMode};

use crate::report::{Failure, Finding, Findings};
use crate::workspace::{Package, Workspace};

/// Licences that let a program under MIT or Apache-2.0 use what they cover, as SPDX names. To accept one
/// more, read it first: nothing that asks for the source of what links it.
const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Finds dependencies whose licence is missing, unreadable or not accepted.
pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let metadata = workspace.metadata(true)?;
    let mut broken = Vec::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for package in &metadata.packages {
        *seen
            .entry(package.license.as_deref().unwrap_or("none stated"))
            .or_default() += 1;
        if let Err(rule) = accept(package) {
            // Cargo.lock is where a reader finds a dependency that no manifest of ours names.
            let file = match package.source {
                Some(_) => "Cargo.lock".to_string(),
                None => workspace.relative(&package.manifest_path),
            };
            broken.push(Finding::new(
                file,
                0,
                format!("{} {}: {rule}", package.name, package.version),
            ));
        }
    }
    let looked_at = format!(
        "{} packages, {} different terms",
        metadata.packages.len(),
        seen.len()
    );
    Ok(Findings { broken, looked_at })
}

fn accept(package: &Package) -> Result<(), String> {
    let text = package
        .license
        .as_deref()
        .ok_or("states no licence expression")?;
    match is_accepted(text) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "`{text}` asks for a licence that is not accepted in xtask/src/licences.rs"
        )),
        Err(reason) => Err(format!("`{text}` is no licence expression: {reason}")),
    }
}

/// Returns `true` if `text` can be satisfied with what is accepted. An exception (`WITH`) only permits more.
fn is_accepted(text: &str) -> Result<bool, String> {
    let expression = Expression::parse_mode(text, ParseMode::LAX);
    let expression = expression.map_err(|error| error.reason.to_string())?;
    Ok(expression.evaluate(|asked| {
        let licence = asked.license.id();
        licence.is_some_and(|licence| ACCEPTED.contains(&licence.name))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_terms_are_accepted() {
        for text in [
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Zlib",
            "MIT AND (GPL-2.0-only OR BSD-3-Clause) AND ISC",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(is_accepted(text), Ok(true), "{text}");
        }
    }

    #[test]
    fn terms_that_ask_for_source_are_not() {
        for text in [
            "GPL-2.0-only",
            "MIT AND LGPL-2.1-or-later",
            "AGPL-3.0 OR SSPL-1.0",
            "(MIT OR GPL-2.0-only) AND AGPL-3.0-only",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ] {
            assert_eq!(is_accepted(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for text in [
            "",
            "proprietary",
            "MIT OR",
            "AND MIT",
            "(MIT",
            "MIT)",
            "MIT ISC",
            "MIT WITH",
            "()",
        ] {
            assert!(is_accepted(text).is_err(), "{text}");
        }
    }
}
