//! Settings that every bench receives when it creates its cases, and the menu of a bench.

use clap::Args;
use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::{CpuId, Topology};

use crate::harness::case::Case;
use crate::harness::metric::Text;
use crate::output::words::distinct;

/// The value of `--peers` that selects no peer.
pub(super) const NONE: &str = "none";

#[derive(Clone, Debug)]
pub struct Settings {
    pub quick: bool,
    pub topology: Topology,
    pub cpus: Vec<CpuId>,
    /// The CPUs to which producers are pinned in turn. It is empty if they are not pinned.
    pub pins: Vec<CpuId>,
    /// The interrupt flag, which runs check at least ten times a second.
    pub interrupt: Interrupt,
    /// `true` if all variants run in this process. Otherwise some run in a process of their own.
    pub inside: bool,
    pub pick: Pick,
}

/// The cases and peers of a bench, as they are spelled in tables and in table order.
#[derive(Clone, Copy, Debug)]
pub struct Menu {
    pub cases: &'static [&'static str],
    pub peers: &'static [&'static str],
}

/// The selected cases and peers. An empty list selects all.
#[derive(Args, Clone, Debug, Default)]
pub struct Pick {
    /// Cases to run, separated by commas; the help of a bench lists them [default: all]
    #[arg(long, global = true, value_name = "CASE,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Peers to measure, separated by commas, or none; the help of a bench lists them [default:
    /// all]
    #[arg(long, global = true, value_name = "PEER,…", value_delimiter = ',')]
    pub peers: Vec<String>,
}

/// The size of a run, and its size with `--quick`.
pub type Sizes<T = usize> = [T; 2];

pub type Entry<S, C = Case> = (Text, fn(&S, Text) -> C);

pub const fn names<T, const N: usize>(entries: &[(Text, T); N]) -> [Text; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = entries[index].0;
        index += 1;
    }
    names
}

impl Menu {
    /// Returns `true` if `name` is one of `peers` or an unlisted variation of one (`tokio+yield`).
    fn is_one_of(self, peers: &[String], name: &str) -> bool {
        let base = name.split_once('+').map_or(name, |(base, _)| base);
        let name = if self.peers.contains(&name) { name } else { base };
        peers.iter().any(|peer| peer == name)
    }

    pub fn help(self) -> String {
        let [cases, peers] = [self.cases, self.peers].map(|names| names.join(", "));
        format!("Cases: {cases}\nPeers: {peers}")
    }
}

impl Pick {
    pub fn first_of(&self, menu: &Menu) -> Option<&str> {
        let mut cases = self.cases.iter().map(String::as_str);
        cases.find(|case| menu.cases.contains(case))
    }

    pub fn check(&self, menus: &[Menu]) -> Result<(), Stop> {
        let cases = menus.iter().flat_map(|menu| menu.cases);
        let peers = menus.iter().flat_map(|menu| menu.peers).chain([&NONE]);
        known("--cases", &self.cases, cases.copied().collect())?;
        known("--peers", &self.peers, peers.copied().collect())?;
        if self.peers.len() > 1 && self.peers.iter().any(|peer| peer == NONE) {
            let peers = self.peers.join(",");
            return Err(Stop::CouldNotRun(format!("--peers {peers}: {NONE} excludes other names")));
        }
        Ok(())
    }
}

pub(super) fn known(option: &str, names: &[String], valid: Vec<&str>) -> Result<(), Stop> {
    let Some(unknown) = names.iter().find(|name| !valid.contains(&name.as_str())) else {
        return Ok(());
    };
    let distinct = distinct(valid);
    // An empty name is easy to overlook without quotes.
    let typed = if unknown.is_empty() { "''" } else { unknown };
    Err(Stop::CouldNotRun(format!(
        "{option} {typed}: unknown name; {}valid: {}",
        nearest(unknown, &distinct),
        distinct.join(", ")
    )))
}

/// Returns a text such as `nearest: 'parked'; ` with the `valid` names that begin with `typed`, or
/// with the one that is nearest to it. Returns an empty text if no name is near.
fn nearest(typed: &str, valid: &[&str]) -> String {
    let begun = valid.iter().filter(|name| !typed.is_empty() && name.starts_with(typed));
    let begun: Vec<&str> = begun.copied().collect();
    if !begun.is_empty() {
        return format!("nearest: '{}'; ", begun.join("', '"));
    }
    /// The threshold that clap uses for suggestions.
    const ALIKE: f64 = 0.7;
    let best = valid.iter().map(|name| (strsim::jaro(typed, name), name));
    match best.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((score, name)) if score > ALIKE => format!("nearest: '{name}'; "),
        _ => String::new(),
    }
}

impl Settings {
    pub fn wants_case(&self, case: &str) -> bool {
        let cases = &self.pick.cases;
        cases.is_empty() || cases.iter().any(|wanted| wanted == case)
    }

    pub fn workers(&self) -> usize {
        self.cpus.len()
    }

    pub fn size<T>(&self, asked: Option<T>, [usual, quick]: Sizes<T>) -> T {
        asked.unwrap_or(if self.quick { quick } else { usual })
    }

    /// Returns `test` in unit tests, which measure nothing. Otherwise returns the usual or the
    /// quick size.
    pub fn sized<T>(&self, sizes: Sizes<T>, test: T) -> T {
        self.size(cfg!(test).then_some(test), sizes)
    }

    /// Creates the selected cases that this machine can run, without peers that were not selected.
    pub fn make<S, C: Into<Option<Case>>>(
        &self,
        menu: Menu,
        entries: &[Entry<S, C>],
        setting: &S,
    ) -> Vec<Case> {
        let entries = entries.iter().filter(|(name, _)| self.wants_case(name));
        let cases = entries.filter_map(|(name, make)| make(setting, name).into());
        let mut cases: Vec<Case> = cases.collect();
        let peers = &self.pick.peers;
        for case in &mut cases {
            case.variants
                .retain(|it| !it.peer || peers.is_empty() || menu.is_one_of(peers, &it.name));
        }
        cases
    }
}

/// Parses a whole number from 1 to `MAX`. The error is a message for the user.
pub fn count<const MAX: u64>(text: &str) -> Result<usize, String> {
    top::cli::number::<1, MAX>(text).map(|number| number as usize)
}

pub(super) fn may_set_fifo() -> bool {
    // This uses another thread, so that the priority of the current one does not change.
    let tried = std::thread::spawn(|| sync::thread::set_fifo(1).is_ok());
    tried.join().is_ok_and(|may| may)
}

pub fn seed(text: &str) -> Result<u64, String> {
    top::cli::number::<0, { u64::MAX }>(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::{Sample, Variant};

    impl Settings {
        pub(crate) fn of_tests(cases: &[&str]) -> Self {
            Self {
                quick: true,
                topology: Topology::detect().unwrap(),
                inside: true,
                cpus: sync::cpu::affinity().unwrap().iter().collect(),
                pick: Pick {
                    cases: cases.iter().map(ToString::to_string).collect(),
                    peers: Vec::new(),
                },
                pins: Vec::new(),
                interrupt: Interrupt::default(),
            }
        }
    }

    const DISHES: [Entry<()>; 2] = [("soup", case), ("fish", case)];
    const MEAL: Menu = Menu { cases: &names(&DISHES), peers: &["salt", "pepper"] };

    fn case((): &(), name: Text) -> Case {
        let none = || Ok(Some(Sample::default()));
        let peers = MEAL.peers.iter().map(|peer| Variant::peer(*peer, none));
        Case {
            variants: [Variant::ours("water", none)].into_iter().chain(peers).collect(),
            ..Case::new("meal", name, &[], "")
        }
    }

    fn picked(cases: &[&str], peers: &[&str]) -> Settings {
        let mut settings = Settings::of_tests(cases);
        settings.pick.peers = peers.iter().map(ToString::to_string).collect();
        settings
    }

    fn made(cases: &[&str], peers: &[&str]) -> Vec<(&'static str, Vec<String>)> {
        let names = |case: Case| {
            let variants = case.variants.into_iter();
            (case.name, variants.map(|it| it.name).collect())
        };
        let cases = picked(cases, peers).make(MEAL, &DISHES, &());
        cases.into_iter().map(names).collect()
    }

    #[test]
    fn empty_selection_selects_everything() {
        let all: Vec<_> = made(&[], &[]);
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|(_, variants)| variants.len() == 3));
    }

    #[test]
    fn unselected_peers_are_omitted_and_ours_stay() {
        let salted = [("fish", vec!["water".into(), "salt".into()])];
        assert_eq!(made(&["fish"], &["salt"]), salted);
        assert_eq!(made(&["soup"], &[NONE]), [("soup", vec!["water".into()])]);
    }

    #[test]
    fn variants_of_a_peer_are_selected_with_it_unless_listed() {
        let menu = Menu { cases: &[], peers: &["salt", "pepper", "pepper+ground"] };
        let picked = |peer: &str, name| menu.is_one_of(&[peer.to_string()], name);
        assert!(picked("salt", "salt") && picked("salt", "salt+sea"));
        assert!(!picked("pepper", "pepper+ground") && picked("pepper+ground", "pepper+ground"));
        assert!(!picked("salt", "pepper"));
    }

    #[test]
    fn case_that_cannot_run_is_omitted() {
        let dishes: [Entry<(), Option<Case>>; 2] =
            [("soup", |(), name| Some(case(&(), name))), ("fish", |(), _| None)];
        assert_eq!(picked(&[], &[]).make(MEAL, &dishes, &()).len(), 1);
    }

    #[test]
    fn unknown_name_is_reported_with_the_valid_ones() {
        let check = |cases, peers| match picked(cases, peers).pick.check(&[MEAL]) {
            Err(Stop::CouldNotRun(reason)) => reason,
            checked => checked.map(|()| String::new()).unwrap(),
        };
        assert_eq!(check(&["fish"], &["salt", "pepper"]), "");
        let reason = check(&["salt"], &[]);
        assert!(reason.starts_with("--cases salt:") && reason.ends_with("valid: soup, fish"));
        let reason = check(&[""], &[]);
        assert!(reason.starts_with("--cases '': unknown name"), "{reason}");
        let reason = check(&[], &[NONE, "salt"]);
        assert_eq!(reason, "--peers none,salt: none excludes other names");
        assert_eq!(nearest("peper", MEAL.peers), "nearest: 'pepper'; ");
        assert_eq!(nearest("s", &["salt", "sugar"]), "nearest: 'salt', 'sugar'; ");
        assert_eq!(nearest("xyz", MEAL.peers), "");
    }
}
