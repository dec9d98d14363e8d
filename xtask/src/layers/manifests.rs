//! The rules about what Cargo.toml files depend on.

use std::path::Path;

use super::rules::{DOOR_CRATES, is_above_sync, our_crate, rank};
use crate::report::Finding;
use crate::workspace::Package;

/// Finds dependencies that point up or past `sync`; `relative` names a manifest from the root.
pub fn check(packages: &[Package], relative: impl Fn(&Path) -> String) -> Vec<Finding> {
    let mut broken = Vec::new();
    for package in packages {
        let file = relative(&package.manifest_path);
        let folder = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        for rule in rules_broken(folder, package) {
            broken.push(Finding::new(&file, 0, rule));
        }
    }
    broken
}

fn rules_broken(folder: Option<&str>, package: &Package) -> Vec<String> {
    let Some(folder) = folder else {
        let ours = package
            .dependencies
            .iter()
            .filter(|dependency| our_crate(&dependency.name).is_some());
        return ours
            .map(|dependency| {
                format!(
                    "a chore depends on `{}`: it must build when that does not",
                    dependency.name
                )
            })
            .collect();
    };
    let Some(own_rank) = rank(folder) else {
        return vec![format!(
            "crates/{folder} has no layer: give it a row in xtask/src/layers/rules.rs"
        )];
    };
    let mut broken = Vec::new();
    for dependency in &package.dependencies {
        let name = &dependency.name;
        if let Some(other) = our_crate(name)
            && rank(other) >= Some(own_rank)
            // Tests may give their own crate a feature.
            && other != folder
        {
            broken.push(format!(
                "`{folder}` depends on `{name}`, which is not below it"
            ));
        }
        let for_tests = dependency.kind.as_deref() == Some("dev");
        if is_above_sync(folder) && !for_tests && DOOR_CRATES.contains(&name.as_str()) {
            broken.push(format!(
                "`{folder}` depends on `{name}`: only `sync` may, name `sync` instead"
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn broken(manifest: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let package = Package {
            name: String::new(),
            version: String::new(),
            source: None,
            license: None,
            manifest_path: manifest.into(),
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| Dependency {
                    name: name.to_string(),
                    kind: kind.map(str::to_string),
                })
                .collect(),
            targets: Vec::new(),
        };
        let found = check(&[package], |path| path.display().to_string());
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_dependency_that_points_down_is_fine() {
        let down = [
            ("afterwork-sync", None),
            ("afterwork-topology", None),
            ("crossbeam-utils", None),
        ];
        assert!(broken("crates/afterwork/Cargo.toml", &down).is_empty());
    }

    #[test]
    fn a_dependency_that_points_up_or_aside_is_named() {
        let found = broken("crates/sync/Cargo.toml", &[("afterwork", Some("dev"))]);
        assert_eq!(
            found,
            ["crates/sync/Cargo.toml: `sync` depends on `afterwork`, which is not below it"]
        );
        assert_eq!(
            broken("crates/capi/Cargo.toml", &[("afterwork-lab", None)]).len(),
            1
        );
    }

    #[test]
    fn a_model_checker_is_for_tests_alone() {
        assert!(broken("crates/mpscq/Cargo.toml", &[("loom", Some("dev"))]).is_empty());
        assert_eq!(
            broken("crates/mpscq/Cargo.toml", &[("loom", None)]).len(),
            1
        );
        assert!(broken("crates/sync/Cargo.toml", &[("loom", None), ("libc", None)]).is_empty());
    }

    #[test]
    fn a_crate_without_a_layer_is_named() {
        assert_eq!(broken("crates/other/Cargo.toml", &[]).len(), 1);
    }

    #[test]
    fn chores_depend_on_nothing_of_ours() {
        assert_eq!(broken("xtask/Cargo.toml", &[("afterwork", None)]).len(), 1);
        assert!(broken("xtask/Cargo.toml", &[("serde", None)]).is_empty());
    }
}
