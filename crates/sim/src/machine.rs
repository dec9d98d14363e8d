//! Machine files: the CPUs, and the cost of each operation, with the source of each figure.
//!
//! ```toml
//! topology = "1 numa x 72 core"
//! [costs]
//! rmw_hit = { ns = 3.0, from = "guess" }
//! ```
//!
//! The supported subset of TOML: comments, `name = "text"`, and tables of one line in `[costs]`.

use std::collections::BTreeMap;
use std::path::Path;

use sync::sim::{Costs, MAX_CPUS};
use topology::Topology;

#[derive(Debug)]
pub struct Machine {
    /// The count and name of each level, outermost first.
    levels: Vec<(usize, String)>,
    costs: BTreeMap<&'static str, Figure>,
}

#[derive(Clone, Debug)]
struct Figure {
    ns: f64,
    from: String,
}

impl Figure {
    fn is_guess(&self) -> bool {
        self.from.starts_with("guess")
    }
}

impl Machine {
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut topology, mut costs, mut is_costs) = (None, BTreeMap::new(), false);
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: String| format!("line {}: {what}", number + 1);
            let line = line.trim();
            match line.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
                _ if line.is_empty() || line.starts_with('#') => {}
                _ if line == "[costs]" => is_costs = true,
                Some((name, value)) if is_costs => {
                    let known = Costs::NAMES.iter().find(|known| known.0 == name);
                    let (known, _) =
                        known.ok_or_else(|| wrong(format!("unknown cost `{name}`")))?;
                    let figure = figure(name, value).map_err(wrong)?;
                    if costs.insert(*known, figure).is_some() {
                        return Err(wrong(format!("`{name}` occurs twice")));
                    }
                }
                Some(("topology", value)) => topology = Some(value.trim_matches('"').to_owned()),
                Some(("about", _)) => {}
                _ => {
                    return Err(wrong(format!(
                        "`{line}` is neither `topology`, `about` nor `[costs]`"
                    )));
                }
            }
        }
        let missing = Costs::NAMES.iter().filter(|(name, _)| !costs.contains_key(name));
        if let Some((name, about)) = missing.clone().next() {
            let (about, nr) = (about.trim(), missing.count());
            return Err(format!("no cost `{name}` ({about}); {nr} are missing"));
        }
        let topology = topology.ok_or("no `topology`")?;
        Topology::synthetic(&topology).map_err(|error| error.to_string())?;
        let levels: Vec<_> = topology
            .split(" x ")
            .filter_map(|level| level.trim().split_once(' '))
            .filter_map(|(count, kind)| Some((count.parse().ok()?, kind.trim().to_owned())))
            .collect();
        let machine = Self { levels, costs };
        machine.check_order()?;
        Ok(machine)
    }

    /// Checks that a line from farther away does not arrive sooner.
    fn check_order(&self) -> Result<(), String> {
        let ns = |name: &str| self.costs[name].ns;
        for (near, far) in
            [("smt", "llc_dirty"), ("llc", "llc_dirty"), ("llc_dirty", "xllc"), ("xllc", "xnode")]
        {
            let (a, b) = (ns(near), ns(far));
            if a > b {
                return Err(format!("`{near}` costs more than `{far}`: {a} and {b} ns"));
            }
        }
        Ok(())
    }

    fn shape(&self, levels: &[(usize, String)]) -> String {
        let levels: Vec<_> = levels.iter().map(|(count, kind)| format!("{count} {kind}")).collect();
        levels.join(" x ")
    }

    pub fn nr_cpus(&self) -> usize {
        self.levels.iter().map(|level| level.0).product()
    }

    /// Returns the topology scaled to `nr_cpus`, with fewer outer levels, or more units of the
    /// outermost level.
    pub fn topology(&self, nr_cpus: usize) -> Result<Topology, String> {
        if !(1..=MAX_CPUS).contains(&nr_cpus) {
            return Err(format!("{nr_cpus} CPUs: a simulation has 1 to {MAX_CPUS}"));
        }
        let (mut left, mut levels) = (nr_cpus, self.levels.clone());
        for (depth, (count, kind)) in levels.iter_mut().enumerate().rev() {
            let fits = if depth == 0 { left } else { (*count).min(left) };
            if left % fits != 0 || (kind == "smt" && fits != *count) {
                let shape = self.shape(&self.levels);
                return Err(format!("{nr_cpus} CPUs cannot be made of {shape}"));
            }
            (*count, left) = (fits, left / fits);
        }
        Topology::synthetic(&self.shape(&levels)).map_err(|error| error.to_string())
    }

    pub fn costs(&self, changed: Option<(&str, f64)>) -> Costs {
        Costs::from_ns(|name| {
            let factor = changed.filter(|change| change.0 == name).map_or(1.0, |change| change.1);
            self.costs[name].ns * factor
        })
    }

    pub fn set_shape(&mut self, topology: &str) -> Result<(), String> {
        let text = format!("topology = \"{topology}\"\n{}", self.shown_costs());
        self.levels = Self::parse(&text)?.levels;
        Ok(())
    }

    pub fn ns(&self, name: &str) -> f64 {
        self.costs[name].ns
    }

    pub fn set(&mut self, name: &str, ns: f64, from: &str) {
        let figure = self.costs.get_mut(name).expect("a cost of this machine");
        (figure.ns, figure.from) = (ns, from.into());
    }

    fn shown_costs(&self) -> String {
        let figures = Costs::NAMES.iter().map(|(name, _)| {
            let Figure { ns, from } = &self.costs[name];
            format!("{name} = {{ ns = {ns:.1}, from = \"{from}\" }}\n")
        });
        format!("\n[costs]\n{}", figures.collect::<String>())
    }

    pub fn shown(&self, about: &str) -> String {
        format!(
            "# A machine for `cargo xtask sim --machine`. Each cost names its source; each sweep halves and doubles the guesses.\n\
             about = \"{about}\"\ntopology = \"{}\"\n{}",
            self.shape(&self.levels),
            self.shown_costs()
        )
    }

    pub fn guesses(&self) -> Vec<&'static str> {
        let guessed = self.costs.iter().filter(|(_, figure)| figure.is_guess() && figure.ns > 0.0);
        guessed.map(|(name, _)| *name).collect()
    }
}

fn figure(name: &str, value: &str) -> Result<Figure, String> {
    let inner = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
    let inner = inner
        .ok_or_else(|| format!("`{name}` has no unit: write {{ ns = {value}, from = \"…\" }}"))?;
    let (amount, from) =
        inner.split_once(',').ok_or_else(|| format!("`{name}` has no source: add `from`"))?;
    let (unit, amount) =
        amount.split_once('=').ok_or_else(|| format!("`{name}` has no unit: ns, us or ms"))?;
    let scale = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        other => return Err(format!("`{name}`: unknown unit `{other}`; valid: ns, us, ms")),
    };
    let amount = amount.trim();
    let amount: f64 =
        amount.parse().map_err(|_| format!("`{name}`: `{amount}` is not a number"))?;
    if !(amount.is_finite() && amount >= 0.0) {
        return Err(format!("`{name}` is {amount}: a cost must be finite and not negative"));
    }
    let from = from.trim().strip_prefix("from");
    match from.map(|from| from.trim_start_matches([' ', '=']).trim_matches('"')) {
        Some(from) if !from.is_empty() => Ok(Figure { ns: amount * scale, from: from.into() }),
        _ => Err(format!("`{name}` has no source: add `from`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> String {
        let costs = Costs::NAMES
            .iter()
            .map(|(name, _)| format!("{name} = {{ ns = 5.0, from = \"guess\" }}\n"));
        format!("topology = \"2 numa x 4 core x 2 smt\"\n[costs]\n{}", costs.collect::<String>())
    }

    #[test]
    fn bad_files_are_rejected_with_the_reason() {
        for (from, to, reason) in [
            ("ttwu = { ns = 5.0, from = \"guess\" }\n", "", "no cost `ttwu`"),
            ("ttwu = { ns = 5.0", "ttwu = { ns = -5.0", "not negative"),
            ("ttwu = { ns = 5.0, from = \"guess\" }", "ttwu = 5.0", "no unit"),
            ("ttwu = { ns = 5.0", "ttwu = { 5.0", "no unit"),
            ("ttwu = { ns = 5.0", "ttwu = { s = 5.0", "unknown unit `s`"),
            ("ttwu = { ns = 5.0, from = \"guess\"", "ttwu = { ns = 5.0", "`from`"),
            ("ttwu =", "twtu =", "line "),
            ("4 core", "4 cors", "expected a level"),
            ("llc_dirty = { ns = 5.0", "llc_dirty = { ns = 50.0", "costs more"),
            ("topology", "# topology", "no `topology`"),
        ] {
            let error = Machine::parse(&whole().replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(reason), "{to}: {error}");
        }
    }

    #[test]
    fn a_machine_shrinks_and_grows_by_its_outer_levels() {
        let machine = Machine::parse(&whole()).unwrap();
        let shape = |nr_cpus| {
            machine.topology(nr_cpus).map(|topology| (topology.nodes().len(), topology.nr_cpus()))
        };
        assert_eq!(machine.nr_cpus(), 16);
        assert_eq!((shape(4), shape(16), shape(64)), (Ok((1, 4)), Ok((2, 16)), Ok((8, 64))));
        assert!(shape(3).unwrap_err().contains("cannot be made of 2 numa x 4 core x 2 smt"));
        assert!(shape(1025).unwrap_err().contains("1 to 1024"));
    }

    #[test]
    fn the_files_of_this_project_are_whole() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let machines: Vec<_> = files.map(|file| Machine::read(&file).unwrap()).collect();
        assert!(machines.len() >= 6);
    }
}
