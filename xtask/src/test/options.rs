//! The command line of `cargo xtask test`.

use super::plan::{LAYERS, Layer};
use crate::report::Failure;

#[derive(Debug)]
pub struct Options {
    pub layers: Vec<&'static Layer>,
    pub list: bool,
    pub json: bool,
    pub help: bool,
}

impl Options {
    pub fn parse(args: &[String]) -> Result<Self, Failure> {
        let mut options = Self { layers: Vec::new(), list: false, json: false, help: false };
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            match arg {
                "--list" => options.list = true,
                "--json" => options.json = true,
                "--help" | "-h" => options.help = true,
                "--only" => options.only(args.next().unwrap_or_default())?,
                _ => match arg.strip_prefix("--only=") {
                    Some(names) => options.only(names)?,
                    None => return Err(unknown(arg)),
                },
            }
        }
        if options.layers.is_empty() {
            options.layers = LAYERS.iter().collect();
        }
        Ok(options)
    }

    fn only(&mut self, names: &str) -> Result<(), Failure> {
        let names: Vec<_> = names.split(',').map(str::trim).collect();
        let all: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
        if let Some(name) = names.iter().find(|name| !all.contains(name)) {
            let valid = all.join(", ");
            return Err(Failure::new(format!("unknown layer `{name}`; valid: {valid}")));
        }
        self.layers = LAYERS.iter().filter(|layer| names.contains(&layer.name)).collect();
        Ok(())
    }
}

fn unknown(arg: &str) -> Failure {
    Failure::new(format!(
        "unknown argument `{arg}`; `test` takes --only LAYER[,LAYER], --list, --json, --help"
    ))
}

pub fn help() -> String {
    let mut text = String::from(
        "Runs every layer of tests and counts them.\n\n\
         Usage: cargo xtask test [--only LAYER[,LAYER]] [--list] [--json]\n\n\
         Layers, in the order they run:\n",
    );
    for layer in LAYERS {
        text += &format!("  {:<12} {}\n", layer.name, layer.asks);
    }
    text += "
  --only LAYERS  run only these
  --list         show the commands of each layer
  --json         print one record per layer instead of the table, and a last one for all

On two CPUs this takes about 17 minutes and 5 GB of disk, twice that with CARGO_INCREMENTAL=1. Miri needs a nightly toolchain
(`rustup toolchain install nightly --component miri,rust-src`); without one its layer is skipped.

A model that fails prints the interleaving; to see each step, set LOOM_LOG=trace, LOOM_LOCATION=1 and run it with
--only loom. The models keep your RUSTFLAGS and add their --cfg.
Exit code: 0 all passed, 1 some failed, 2 could not run, 130 interrupted.
";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, Failure> {
        Options::parse(&args.iter().map(|arg| arg.to_string()).collect::<Vec<_>>())
    }

    fn names(args: &[&str]) -> Vec<&'static str> {
        parse(args).unwrap().layers.iter().map(|layer| layer.name).collect()
    }

    #[test]
    fn without_arguments_all_layers_run() {
        assert_eq!(names(&[]).len(), LAYERS.len());
    }

    #[test]
    fn layers_run_in_the_order_of_the_table() {
        assert_eq!(names(&["--only", "loom,unit"]), ["unit", "loom"]);
        assert_eq!(names(&["--only=doc"]), ["doc"]);
    }

    #[test]
    fn wrong_input_is_one_line_that_names_it() {
        for (args, named) in
            [(&["--only", "nosuch"][..], "nosuch"), (&["--fast"], "--fast"), (&["--only"], "``")]
        {
            let text = parse(args).unwrap_err().to_string();
            assert!(text.contains(named) && text.lines().count() == 1, "{text}");
        }
    }
}
