//! The commands of each layer.
//!
//! Test programs are discovered by their names. A crate joins the layer `loom` with `tests/loom.rs`
//! or `tests/loom/main.rs`, and joins `shuttle` and `sim` in the same way. Tests called `prop` or
//! `prop_…` belong to `property`, and all others to `integration`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::miri;
use crate::sim;
use crate::workspace::{Metadata, NIGHTLY, OF_OUR_TOOLCHAIN, Package};

#[derive(Debug)]
pub struct Layer {
    pub name: &'static str,
    pub asks: &'static str,
    /// The time limit of one command. This is an estimate: a slow machine with two CPUs needs only
    /// a fraction of it, including the build. The limit ends commands that hang. It does not judge
    /// speed.
    pub limit: Duration,
    /// The number of commands that run at the same time. It is more than one if a command uses only
    /// one CPU.
    pub at_once: usize,
}

/// The crate whose models only call other crates.
const FACADE: &str = "afterwork";
/// Building the models with optimization takes longer, and does not make them run faster.
const TESTS_ARE_NOT_OPTIMIZED: &str = "profile.release.package.afterwork.opt-level=1";

const UNIT: &str = "unit";
const PROPERTY: &str = "property";
const INTEGRATION: &str = "integration";
const DOC: &str = "doc";
const LOOM: &str = "loom";
const SHUTTLE: &str = "shuttle";
pub const SIM: &str = "sim";
pub const MIRI: &str = "miri";

const fn layer(name: &'static str, asks: &'static str, minutes: u64, at_once: usize) -> Layer {
    Layer { name, asks, limit: Duration::from_secs(60 * minutes), at_once }
}

/// All layers, in the order of their cost.
pub const LAYERS: &[Layer] = &[
    layer(UNIT, "is this function right?", 15, 1),
    layer(PROPERTY, "does it match a slow, obvious model on random input?", 10, 1),
    layer(INTEGRATION, "do the parts work together on the real machine?", 10, 1),
    layer(DOC, "do the examples compile and run?", 10, 1),
    layer(LOOM, "are the orderings right for 2 or 3 threads, in every interleaving?", 15, 1),
    layer(SHUTTLE, "is the logic right for many threads, in very many interleavings?", 15, 1),
    layer(SIM, "does it work, and each run alike, on a simulated machine of many CPUs?", 10, 1),
    layer(MIRI, "is there undefined behavior?", 30, 2),
];

#[derive(Debug, Default, PartialEq)]
pub struct Step {
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub without: &'static [&'static str],
    /// The prefix of the names of test programs in progress lines.
    pub prefix: Option<String>,
}

impl Step {
    /// Creates a step from words separated by spaces, followed by the arguments `more`.
    pub fn new(words: &str, more: impl IntoIterator<Item = String>) -> Self {
        Self {
            args: words.split_whitespace().map(str::to_string).chain(more).collect(),
            ..Self::default()
        }
    }

    pub fn shown(&self) -> String {
        let env =
            self.env.iter().map(|(name, value)| format!("{name}='{}'", value.replace('\x1f', " ")));
        env.chain(self.args.iter().cloned()).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the commands of `layer`. `variable` reads the environment.
pub fn steps(
    layer: &Layer,
    metadata: &Metadata,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Step> {
    const ALL: &str = "cargo test --workspace --no-fail-fast";
    match layer.name {
        UNIT => vec![Step::new(ALL, ["--lib".into(), "--bins".into()])],
        DOC => vec![Step::new(ALL, ["--doc".into()])],
        MIRI => miri::steps(&variable),
        name => {
            let packages = metadata.packages.iter();
            let of_packages =
                packages.flat_map(|package| package_steps(name, package, metadata, &variable));
            if name == SIM {
                let machine = machine_step(metadata, &variable);
                let plain = plain_step(metadata, &variable);
                return [machine].into_iter().chain(of_packages).chain([plain]).collect();
            }
            of_packages.collect()
        }
    }
}

/// Returns the command that compares the simulated machine with closed-form solutions, with
/// assertions enabled.
fn machine_step(metadata: &Metadata, variable: &impl Fn(&str) -> Option<String>) -> Step {
    let apart = metadata.target_directory.join(SIM).display().to_string();
    let args = ["--target-dir", &apart, "--", "simulated::", "placement::", "clock::"];
    let args = args.map(str::to_string);
    let optimised = ("CARGO_PROFILE_DEV_OPT_LEVEL".to_string(), "2".to_string());
    Step {
        env: vec![sim::flags(variable), optimised],
        prefix: Some("afterwork-sync".into()),
        ..Step::new(
            "cargo test -p afterwork-simachine -p afterwork-sync --lib --features afterwork-sync/sim",
            args,
        )
    }
}

/// Returns the command that runs some tests with instrumented plain accesses. It uses the nightly
/// toolchain.
fn plain_step(metadata: &Metadata, variable: &impl Fn(&str) -> Option<String>) -> Step {
    let apart = metadata.target_directory.join(sim::PLAIN);
    let words = format!("rustup run {NIGHTLY} cargo test --release -p afterwork-sim --test sim");
    let tests = ["--", "plain_", "equal_seeds", "on_eight_cpus", "a_bug_is_put_back"];
    let to = ["--target-dir".into(), apart.display().to_string()];
    let args = sim::shows_plain().chain(to).chain(tests.map(str::to_string));
    Step {
        env: vec![sim::flags(variable)],
        without: OF_OUR_TOOLCHAIN,
        prefix: Some("afterwork-sim, plain accesses shown".into()),
        ..Step::new(&words, args)
    }
}

/// Returns the commands for the test programs of `package` in `layer`. There is one command per set
/// of features.
///
/// Each package is tested alone, so that it has the same features as for its users.
fn package_steps(
    layer: &str,
    package: &Package,
    metadata: &Metadata,
    variable: &impl Fn(&str) -> Option<String>,
) -> Vec<Step> {
    let tests = package.targets.iter().filter(|target| target.is_test());
    let tests: Vec<_> = tests.filter(|test| layer_of(&test.name) == layer).collect();
    let mut steps = Vec::new();
    for needs_features in [false, true] {
        let tests = tests.iter().filter(|it| it.required_features.is_empty() != needs_features);
        let features: BTreeSet<_> =
            tests.clone().flat_map(|test| &test.required_features).collect();
        let features: Vec<_> = features.into_iter().map(String::as_str).collect();
        let names: Vec<_> = tests.flat_map(|it| ["--test".to_string(), it.name.clone()]).collect();
        if names.is_empty() {
            continue;
        }
        let mut args = vec!["-p".to_string(), package.name.clone()];
        if needs_features {
            args.extend(["--features".to_string(), features.join(",")]);
        }
        args.extend(names);
        let mut env = Vec::new();
        if layer == SIM {
            // The unit tests of these packages run only on the simulated machine.
            args.push("--bins".into());
        }
        if matches!(layer, LOOM | SHUTTLE | SIM) {
            // Models are optimized, because they run millions of times, and have no debug
            // information, which would take as much disk space as the rest. They are built in a
            // separate folder, because their `--cfg` affects every crate.
            let apart = metadata.target_directory.join(layer).display().to_string();
            args.extend(["--release".to_string(), "--target-dir".to_string(), apart]);
            if package.name == FACADE {
                args.extend(["--config".to_string(), TESTS_ARE_NOT_OPTIMIZED.to_string()]);
            }
            env.push(("CARGO_PROFILE_RELEASE_DEBUG".to_string(), "false".to_string()));
            env.push(match layer {
                SIM => sim::flags(variable),
                _ => with_cfg(layer, variable),
            });
        }
        let prefix = Some(package.name.clone());
        steps.push(Step { env, prefix, ..Step::new("cargo test --no-fail-fast", args) });
    }
    steps
}

fn layer_of(test: &str) -> &'static str {
    match test {
        "loom" => LOOM,
        "shuttle" => SHUTTLE,
        "sim" => SIM,
        "prop" => PROPERTY,
        _ if test.starts_with("prop_") => PROPERTY,
        _ => INTEGRATION,
    }
}

/// Adds `--cfg NAME` to the user's flags, in the form that the user chose.
pub fn with_cfg(cfg: &str, variable: &impl Fn(&str) -> Option<String>) -> (String, String) {
    const ENCODED: &str = "CARGO_ENCODED_RUSTFLAGS";
    const PLAIN: &str = "RUSTFLAGS";
    // The encoded form takes precedence in Cargo. A unit separator is between its parts.
    let (name, separator, own) = match variable(ENCODED) {
        Some(own) => (ENCODED, "\x1f", own),
        None => (PLAIN, " ", variable(PLAIN).unwrap_or_default()),
    };
    let parts = [own.as_str(), "--cfg", cfg];
    let given: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    (name.to_string(), given.join(separator))
}

pub fn list(metadata: &Metadata) -> String {
    let mut text = String::new();
    for layer in LAYERS {
        text += &format!("{}: {}\n", layer.name, layer.asks);
        let steps = steps(layer, metadata, |name| std::env::var(name).ok());
        if steps.is_empty() {
            text += "    no commands\n";
        }
        for step in steps {
            text += &format!("    {}\n", step.shown());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_of(layer: &str, packages: Vec<Package>) -> Vec<Step> {
        let layer = LAYERS.iter().find(|row| row.name == layer).unwrap();
        steps(layer, &Metadata { packages, target_directory: "t".into() }, |_| None)
    }

    fn shown(layer: &str) -> Vec<String> {
        let one = Package::with_tests("one", &["prop", "loom", "cli", "serve"]);
        let two = Package::with_tests("two", &["loom", "prop_pods"]);
        steps_of(layer, vec![one, two]).iter().map(Step::shown).collect()
    }

    #[test]
    fn each_test_program_is_in_one_layer() {
        let command = "cargo test --no-fail-fast -p";
        let properties = ["one --test prop", "two --test prop_pods"];
        assert_eq!(shown(PROPERTY), properties.map(|it| format!("{command} {it}")));
        assert_eq!(shown(INTEGRATION), [format!("{command} one --test cli --test serve")]);
        assert!(shown(SHUTTLE).is_empty());
    }

    #[test]
    fn tests_that_need_features_are_run_with_them_apart() {
        let mut one = Package::with_tests("one", &["cli", "events", "tasks"]);
        one.targets[1].required_features = vec!["tracing".into()];
        one.targets[2].required_features = vec!["tokio".into()];
        let shown: Vec<_> = steps_of(INTEGRATION, vec![one]).iter().map(Step::shown).collect();
        let apart = "--features tokio,tracing --test events --test tasks";
        let expected = ["--test cli", apart];
        assert_eq!(shown, expected.map(|it| format!("cargo test --no-fail-fast -p one {it}")));
    }

    #[test]
    fn models_are_found_and_built_apart() {
        let env = "CARGO_PROFILE_RELEASE_DEBUG='false' RUSTFLAGS='--cfg loom'";
        let command = format!("{env} cargo test --no-fail-fast -p");
        let args = "--test loom --release --target-dir t/loom";
        assert_eq!(shown(LOOM), ["one", "two"].map(|name| format!("{command} {name} {args}")));
    }

    #[test]
    fn models_of_the_facade_are_not_optimized() {
        for layer in [LOOM, SHUTTLE] {
            let steps = steps_of(layer, vec![Package::with_tests(FACADE, &["loom", "shuttle"])]);
            assert!(
                steps[0].args.ends_with(&["--config", TESTS_ARE_NOT_OPTIMIZED].map(Into::into))
            );
            assert!(TESTS_ARE_NOT_OPTIMIZED.contains(&format!(".{FACADE}.")));
        }
    }

    #[test]
    fn flags_of_the_user_are_kept() {
        let plain = |name: &str| (name == "RUSTFLAGS").then(|| "-C opt-level=1".to_string());
        assert_eq!(with_cfg("loom", &plain).1, "-C opt-level=1 --cfg loom");
        let encoded =
            |name: &str| Some(if name == "RUSTFLAGS" { "lost" } else { "-g" }.to_string());
        let (name, flags) = with_cfg("loom", &encoded);
        assert_eq!([&*name, &flags], ["CARGO_ENCODED_RUSTFLAGS", "-g\x1f--cfg\x1floom"]);
    }
}
