//! Tests `afterwork top` as a user runs it, on a child that does some work.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use afterwork::mailbox::Mailbox;
use afterwork::page::{DIRECTORY, name_of};
use afterwork::percpu::PerCpu;
use afterwork::rcu;
use afterwork::workqueue::Workqueue;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prometheus::{Sample, metrics};
use serde_json::Value;
use support::{assert_fails, eventually, text};
use sync::shared_file::SharedFile;

#[path = "../../afterwork/tests/support/prometheus.rs"]
mod prometheus;
mod support;

const CHILD: &str = "AFTERWORK_TEST_CHILD";

/// This is not a test. It is the code of the child, which runs until its input ends.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let name = std::env::var(CHILD).unwrap();
    let queue = Workqueue::builder(&name).max_active(1).build().unwrap();
    let mut mailbox = Mailbox::builder().name("letters").build();
    let poster = mailbox.poster();
    let counts = PerCpu::builder().name("counts").build(|_| 0).unwrap();
    let owner = std::thread::spawn(move || {
        while mailbox.wait(1).is_ok() {
            mailbox.drain(32).for_each(drop);
        }
    });
    let worker = std::thread::spawn(move || {
        for round in 0_u64.. {
            let done: Vec<_> = (0..100).map(|_| queue.spawn(|| drop(rcu::read()))).collect();
            done.into_iter().for_each(|item| item.join().unwrap());
            poster.post(1).unwrap();
            counts.drain_all(|_, count| *count += 1);
            rcu::call(|| ());
            if round == 0 {
                println!("ready");
            }
        }
    });
    drop((owner, worker));
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    std::process::exit(0);
}

fn lines(child: &mut Child) -> std::io::Lines<BufReader<std::process::ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

/// A child that does some work. It is killed when this is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        Self::with_queue("load")
    }

    fn with_queue(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, name)
            .env("AFTERWORK", "observe.publish=on")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        assert!(lines(&mut child).any(|line| line.unwrap().contains("ready")));
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn page(&self) -> PathBuf {
        Path::new(DIRECTORY).join(name_of(self.0.id(), 0))
    }

    /// Returns the child's page with contents. This asks the child first, because the page shrinks
    /// when no reader has asked for some time.
    fn written(&self) -> Vec<u8> {
        loop {
            good(&[&self.pid(), "--once"]);
            let page = fs::read(self.page()).unwrap();
            if page.len() >= HEAD + RECORD {
                return page;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    /// Lets the child end by itself. Returns the path of its page.
    fn end(mut self) -> PathBuf {
        let page = self.page();
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
        page
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
        // A process that is killed leaves its page behind.
        fs::remove_file(self.page()).ok();
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afterwork"));
    command.arg("top").args(args).stdin(Stdio::null());
    command
}

fn top(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

/// Repeats the command until every process has answered in time. A busy machine may need several
/// attempts.
fn answered(args: &[&str]) -> String {
    let mut snapshots = (0..100).map(|_| good(args));
    let look = snapshots.find(|it| !it.contains("does not answer"));
    look.expect("one of a hundred snapshots is answered")
}

fn good(args: &[&str]) -> String {
    let output = top(args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn write_page(path: &Path, page: &[u8], mode: u32) {
    fs::write(path, page).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the output of `args` with the pages of a directory.
fn good_in(directory: &Path, args: &[&str]) -> String {
    good(&[&["--directory", directory.to_str().unwrap()], args].concat())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn has_all(shown: &str, words: &[&str]) {
    for word in words {
        assert!(shown.contains(word), "{word} is missing in:\n{shown}");
    }
}

#[test]
fn a_busy_process_is_shown_as_a_table() {
    let busy = Busy::start();
    let shown = answered(&[&busy.pid(), "--once"]);
    has_all(&shown, &["queue", "load", "pool", "rcu", "mailbox", "letters", "percpu", "counts"]);
    assert!(!shown.contains('\x1b'), "{shown}");
    let list = good(&[]);
    assert!(list.contains(&busy.pid()), "{list}");
}

fn four_snapshots(busy: &Busy) -> Vec<Value> {
    let mut looking = command(&[&busy.pid(), "--json", "--every", "20"]);
    let mut looking = looking.stdout(Stdio::piped()).spawn().unwrap();
    let snapshots = lines(&mut looking).take(4).map(|line| json(&line.unwrap())).collect();
    looking.kill().unwrap();
    looking.wait().unwrap();
    snapshots
}

fn load(look: &Value) -> Option<&Value> {
    let mut queues = look["records"]["queue"].as_array()?.iter();
    queues.find(|queue| queue["name"] == "load")
}

#[test]
fn each_snapshot_is_a_line_of_json_with_rates_from_the_second() {
    let busy = Busy::start();
    // On a busy machine the process may answer too late. In this case all snapshots are read again.
    let live =
        |look: &Value| look["state"] == "live" && look["whole"] == true && load(look).is_some();
    let mut tries = (0..100).map(|_| four_snapshots(&busy));
    let snapshots = tries.find(|snapshots| snapshots.iter().all(live));
    let snapshots = snapshots.expect("it answers four times running");
    let mut completed = Vec::new();
    for (i, look) in snapshots.iter().enumerate() {
        assert_eq!(look["version"], 2);
        assert_eq!(look["pid"], busy.0.id());
        for number in ["round", "age_ms", "took_us", "torn", "left_out", "unknown"] {
            assert!(look[number].is_u64(), "{number} of {look}");
        }
        for kind in ["queue", "pool", "rcu", "mailbox", "percpu"] {
            for record in look["records"][kind].as_array().unwrap() {
                for (name, value) in record.as_object().unwrap() {
                    let is_right = match name.as_str() {
                        "name" | "detail" => value.is_string(),
                        "per_s" => i > 0 && value.as_object().unwrap().values().all(Value::is_f64),
                        _ => value.is_u64(),
                    };
                    assert!(is_right, "{name} of {record}");
                }
            }
        }
        let load = load(look).unwrap();
        assert_eq!(load["max_active"], 1);
        assert_eq!(load["per_s"].is_object(), i > 0);
        completed.push(load["completed"].as_u64().unwrap());
    }
    assert!(completed.is_sorted(), "{completed:?}");
    let rounds = snapshots.iter().map(|look| look["round"].as_u64());
    assert!(rounds.is_sorted_by(|one, next| one < next));
}

#[test]
fn prometheus_output_is_valid_with_rising_histograms() {
    let busy = Busy::start();
    let mut past = (0.0, 0.0);
    for args in [&["--prometheus"][..], &[&busy.pid(), "--prometheus"]] {
        // On a busy machine the process may not have written its page in time.
        let mut snapshots = (0..100).map(|_| good(args));
        let load = format!("pid=\"{}\"", busy.pid());
        let has_load =
            |it: &String| it.lines().any(|it| it.contains(&load) && it.contains("name=\"load\""));
        let shown = snapshots.find(has_load).expect("one of a hundred snapshots is answered");
        let metrics = metrics(&shown).unwrap_or_else(|why| panic!("{why} in\n{shown}"));
        let of = |metric: &str, suffix: &str| {
            let mut samples = metrics[metric].1.iter();
            let is_it = |it: &&Sample| {
                it.0.ends_with(suffix) && it.1["name"] == "load" && it.1["pid"] == busy.pid()
            };
            samples.find(is_it).unwrap().2
        };
        assert_eq!(of("afterwork_queue_max_active", ""), 1.0);
        let [wait, run] = ["afterwork_queue_wait_seconds", "afterwork_queue_run_seconds"];
        assert!([wait, run].iter().all(|it| metrics[*it].0 == "histogram"));
        assert!(of(wait, "_count") == of("afterwork_queue_waits_total", ""));
        let now = (of(wait, "_count"), of(wait, "_sum"));
        assert!(now.0 >= past.0 && now.1 >= past.1, "{past:?} {now:?}");
        past = now;
        let checker = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut checker) = checker else {
            afterwork_top::talk::say("not checked by promtool: it is missing");
            continue;
        };
        checker.stdin.take().unwrap().write_all(shown.as_bytes()).unwrap();
        let checked = checker.wait_with_output().unwrap();
        assert!(checked.status.success(), "{}", text(&checked.stderr));
    }
}

#[test]
fn page_ends_with_its_process_and_is_stale_after_a_kill() {
    let page = Busy::start().end();
    assert!(!page.exists());
    let mut busy = Busy::start();
    let pid = busy.pid();
    // This uses another directory, because the next process that publishes removes stale pages from
    // the common directory.
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join(busy.page().file_name().unwrap());
    fs::copy(busy.page(), &left).unwrap();
    busy.0.kill().unwrap();
    busy.0.wait().unwrap();
    let directory = ["--directory", folder.path().to_str().unwrap()];
    let once = [&directory[..], &[&pid, "--once"]].concat();
    assert_fails(&mut command(&once), "has exited and left");
    let list = json(&good_in(folder.path(), &["--json"]));
    let mut list = list.as_array().unwrap().iter();
    let found = list.find(|it| it["pid"] == busy.0.id()).unwrap();
    assert_eq!(found["state"], "stale");
    // A locked page is not stale, because its process is in another container.
    let file = SharedFile::open(&left).unwrap();
    assert!(file.lock().unwrap());
    assert_fails(&mut command(&once), "lives in another container");
    drop(file);
    drop(busy);
    assert_fails(&mut command(&[&pid]), "AFTERWORK=observe.publish=on");
}

#[test]
fn stopped_process_shows_its_last_state_and_age() {
    let busy = Busy::start();
    good(&[&busy.pid(), "--once"]);
    busy.signal(Signal::SIGSTOP);
    let shown = good(&[&busy.pid(), "--once"]);
    assert!(shown.contains("does not answer") && shown.contains("load"), "{shown}");
    busy.signal(Signal::SIGCONT);
    answered(&[&busy.pid(), "--once"]);
}

#[test]
fn page_truncated_while_shown_is_rejected_without_a_crash() {
    let busy = Busy::start();
    good(&[&busy.pid(), "--once"]);
    let file = File::options().write(true).open(busy.page()).unwrap();
    // The process may still answer an earlier request, and so make its page complete again.
    let refused = (0..100).find_map(|_| {
        file.set_len(100).unwrap();
        let output = top(&[&busy.pid(), "--once"]);
        (output.status.code() != Some(0)).then_some(output)
    });
    let refused = refused.expect("it never read the page");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("too short"), "{refused:?}");
    busy.end();
}

#[test]
fn invalid_page_is_rejected_with_the_reason() {
    let busy = Busy::start();
    let honest = busy.written();
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let make = |name: &str, bytes: &[u8], mode: u32| {
        write_page(Path::new(&path(name)), bytes, mode);
        path(name)
    };
    let changed = |at: usize, byte: u8| {
        let mut bytes = honest.clone();
        bytes[at] = byte;
        bytes
    };
    // A valid copy works like the page itself, except that the process does not answer.
    let copy = good(&[&make("copy", &honest, 0o600), "--once"]);
    assert!(copy.contains("load") && copy.contains("does not answer"), "{copy}");
    symlink(busy.page(), path("link")).unwrap();
    nix::unistd::mkfifo(path("pipe").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(path("directory")).unwrap();
    for (page, reason) in [
        (make("empty", b"", 0o600), "too short"),
        (make("noise", &[0xa5; 5000], 0o600), "does not start"),
        (make("long", &vec![0; 700_000], 0o600), "longer than any page"),
        (make("open", &honest, 0o644), "other users can access it"),
        (make("version", &changed(8, 3), 0o600), "version 3"),
        (make("damaged", &changed(16, !honest[16]), 0o600), "checksum of its head"),
        (make("cut", &honest[..600], 0o600), "too short for"),
        (make("afterwork-1", &honest, 0o600), "it claims to be of process"),
        (path("link"), "symbolic link"),
        (path("pipe"), "not a regular file"),
        (path("directory"), "not a regular file"),
        (path("nosuch"), "No such file"),
        ("many".to_owned(), "is not a process"),
    ] {
        assert_fails(&mut command(&[&page, "--once"]), reason);
    }
    let list = good_in(place.path(), &[]);
    assert!(list.contains("it claims to be of process"), "{list}");
}

/// Characters that change the direction or the lines of a text.
const HOSTILE: RangeInclusive<char> = '\u{2028}'..='\u{206f}';

/// The length of the head of a page, and of a record.
const HEAD: usize = 256;
const RECORD: usize = 320;

/// Updates the checks of a page; see docs/observing.md.
fn seal(page: &mut [u8]) {
    fn put_check(bytes: &mut [u8], at: usize) {
        let sum = bytes[..at].chunks(8).fold(0xcbf2_9ce4_8422_2325_u64, |sum, word| {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
        });
        bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
    let (head, records) = page.split_at_mut(HEAD);
    put_check(head, 96);
    for record in records.chunks_exact_mut(RECORD) {
        put_check(record, 312);
    }
}

#[test]
fn a_hostile_page_of_a_living_process_ends_in_an_answer() {
    let busy = Busy::start();
    let honest = busy.written();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("hostile");
    let set_round = |page: &mut [u8], round: u64| {
        page[32..40].copy_from_slice(&round.to_le_bytes());
        for record in page[HEAD..].chunks_exact_mut(RECORD) {
            record[8..16].copy_from_slice(&round.to_le_bytes());
        }
    };
    let shows = |page: &mut Vec<u8>| {
        seal(page);
        write_page(&path, page, 0o600);
        ["--once", "--json", "--prometheus"].map(|how| {
            // This prints one snapshot in each format. With JSON, the command ends by itself only
            // with `--once`.
            let args = [path.to_str().unwrap(), how, "--once"];
            let shown = good(&args[..2 + usize::from(how == "--json")]);
            let is_hostile = |c: char| c.is_control() && c != '\n' || HOSTILE.contains(&c);
            assert!(!shown.contains(is_hostile), "{shown:?}");
            shown
        })
    };
    // These are a round that never ends, and the last two rounds.
    for round in [7, u64::MAX, u64::MAX - 1] {
        let mut page = honest.clone();
        set_round(&mut page, round);
        shows(&mut page);
    }
    // In the first page, every record is of another round. The second page is the largest possible
    // one.
    let mut page = honest.clone();
    page[32] ^= 2;
    shows(&mut page);
    let mut page = honest[..HEAD].to_vec();
    let record = &honest[HEAD..HEAD + RECORD];
    page.extend(std::iter::repeat_n(record, 2048).flatten());
    page[20..24].copy_from_slice(&2048_u32.to_le_bytes());
    shows(&mut page);
    // This page contains the largest figures, and names that reverse the line or contain syntax.
    let mut page = honest.clone();
    for record in page[HEAD..].chunks_exact_mut(RECORD) {
        record[120..312].fill(0xff);
        for (at, name) in [(16, "\u{202e}live\"} 1\\"), (80, "\u{2066}x\",\"y")] {
            record[at..at + 40].fill(0);
            record[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
    }
    // The counts of histograms may also fall.
    for (nth, record) in page[HEAD..].chunks_exact_mut(RECORD).enumerate() {
        if record[0] >= 6 {
            let small = (100 + nth as u64).to_le_bytes();
            record[160..168].copy_from_slice(&small);
        }
    }
    let [_, json, exported] = shows(&mut page);
    self::json(&json);
    metrics(&exported).unwrap();
    busy.end();
}

#[test]
fn a_directory_full_of_strange_pages_is_listed_all_the_same() {
    let busy = Busy::start();
    let honest = busy.written();
    let place = tempfile::tempdir().unwrap();
    // These are pages of processes that have exited, with PIDs that no process has.
    for pid in 5_000_000..5_000_200_u32 {
        let mut page = honest.clone();
        page[16..20].copy_from_slice(&pid.to_le_bytes());
        seal(&mut page);
        write_page(&place.path().join(format!("afterwork-{pid}")), &page, 0o600);
    }
    let socket = place.path().join("afterwork-7");
    let _socket = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let shown = |args: &[&str]| good_in(place.path(), args);
    let list = json(&shown(&["--json"]));
    let pages = list.as_array().unwrap().iter();
    assert_eq!(pages.filter(|page| page["state"] == "stale").count(), 200, "{list}");
    assert!(shown(&[]).contains("5000199"));
    shown(&["--prometheus"]);
    // The page of a running process stays when the others are removed.
    let live = place.path().join(format!("afterwork-{}", busy.pid()));
    write_page(&live, &honest, 0o600);
    let gone = shown(&["--prune"]);
    assert_eq!(gone.lines().count(), 200, "{gone}");
    assert!(gone.lines().all(|line| line.starts_with("removed ")) && live.exists());
    let list = shown(&[]);
    assert!(!list.contains("5000199") && list.contains(&busy.pid()), "{list}");
    assert_eq!(shown(&["--prune"]), "");
    busy.end();
}

#[test]
fn every_page_that_does_not_answer_is_listed() {
    let busy = Busy::start();
    let honest = busy.written();
    let place = tempfile::tempdir().unwrap();
    for nth in 0..16 {
        write_page(&place.path().join(name_of(busy.0.id(), nth)), &honest, 0o600);
    }
    let list = good_in(place.path(), &[]);
    assert_eq!(list.matches("does not answer").count(), 16, "{list}");
    busy.end();
}

/// Returns `true` if a snapshot of the demo shows two workers that draw thumbnails, and the items
/// that wait, of which at most 128 are counted.
fn runs_and_waits(look: &Value) -> bool {
    let records = |kind: &str| {
        let records = look["records"][kind].as_array().unwrap().iter();
        let of_function = records.filter(|it| {
            it["name"] == "afterwork_top::demo::draw_thumbnail" && it["detail"] == "thumbnails"
        });
        of_function.collect::<Vec<_>>()
    };
    let workers = records("worker");
    let [function] = records("function")[..] else { return false };
    assert!(function["nr_pending"].as_u64() <= Some(128), "{function}");
    assert!(workers.iter().all(|it| it["thread"].as_u64() > Some(0)), "{workers:?}");
    workers.len() == 2
        && function["nr_running"] == 2
        && function["nr_pending"].as_u64() > Some(10)
        && workers.iter().any(|it| it["sleeps"] == 1)
}

#[test]
fn demo_publishes_itself_and_ends_on_request() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_afterwork"))
        .args(["demo", "--seconds", "600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = demo.id().to_string();
    let mut lines = lines(&mut demo);
    assert!(lines.next().unwrap().unwrap().contains(&pid));
    let shown = good(&[&pid, "--once"]);
    eventually("each tab has an explanation", || {
        let look = json(&good(&[&pid, "--once", "--json"]));
        let of = |kind: &str, name: &str| {
            let records = look["records"][kind].as_array().unwrap();
            records.iter().find(|it| it["name"] == name).cloned().unwrap()
        };
        let busy = of("queue", "thumbnails");
        busy["nr_active"] == busy["max_active"]
            && busy["nr_inactive"].as_u64() > Some(10)
            && of("queue", "later")["completed"].as_u64() > Some(0)
            && of("mailbox", "loop")["received"].as_u64() > Some(0)
            && of("percpu", "counts")["drains"].as_u64() > Some(0)
            && of("rcu", "rcu")["callbacks"].as_u64() > Some(0)
            && runs_and_waits(&look)
    });
    kill(Pid::from_raw(demo.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    has_all(&shown, &["thumbnails", "fetch", "later", "log", "loop", "counts"]);
}

#[test]
fn figures_are_explained() {
    let about = "Threads that run its items";
    assert!(good(&["--fields"]).contains(about));
    let fields = json(&good(&["--fields", "--json"]));
    let queue = fields["queue"].as_array().unwrap();
    let active = queue.iter().find(|it| it["name"] == "nr_active").unwrap();
    assert_eq!(active["measure"], "now");
    assert!(active["about"].as_str().unwrap().contains(about));
}

/// A tmux terminal that runs `afterwork top`.
struct Terminal(PathBuf);

impl Terminal {
    fn start(place: &Path, (width, height): (usize, usize)) -> Option<Self> {
        let terminal = Self(place.join(format!("tmux-{width}")));
        let command = env!("CARGO_BIN_EXE_afterwork");
        let top = format!("'{command}' top --every 100 --directory '{}'", place.display());
        let [width, height] = [width, height].map(|it| it.to_string());
        let size = ["-x", &width, "-y", &height];
        terminal.tmux(&[&["new-session", "-d"], &size[..], &[&top]].concat())?;
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Option<String> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.0).args(["-f", "/dev/null"]);
        // The terminal shows wide letters only with a UTF-8 locale.
        command.env("LC_ALL", "C.UTF-8").env("TERM", "screen");
        let output = command.args(args).output().ok()?;
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        Some(text(&output.stdout).to_owned())
    }

    /// Waits until all of `words` are on the screen.
    fn shows(&self, words: &[&str]) -> String {
        let mut screen = String::new();
        for _ in 0..1200 {
            screen = self.tmux(&["capture-pane", "-p"]).unwrap();
            if words.iter().all(|word| screen.contains(word)) {
                return screen;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{words:?} never appeared:\n{screen}");
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut kill = Command::new("tmux");
        kill.arg("-S").arg(&self.0).arg("kill-server").output().ok();
    }
}

#[test]
fn three_processes_are_shown_in_a_terminal_of_any_size() {
    let names = [
        "load",
        "a-queue-by-a-name-that-is-longer-than-any-column-of-a-phone",
        "\u{1b}[31m\u{202e}der\u{200b}\u{2028}",
    ];
    let busy = names.map(Busy::with_queue);
    let place = tempfile::tempdir_in(DIRECTORY).unwrap();
    for one in &busy {
        good(&[&one.pid(), "--once"]);
        fs::hard_link(one.page(), place.path().join(one.page().file_name().unwrap())).unwrap();
    }
    let mut pids = busy.each_ref().map(Busy::pid);
    pids.sort_unstable_by_key(|pid| pid.parse::<u32>().unwrap());
    for size in [(80, 24), (40, 10), (200, 50)] {
        let Some(terminal) = Terminal::start(place.path(), size) else {
            return afterwork_top::talk::say("not shown in a terminal: tmux is missing");
        };
        let [first, second, third] = pids.each_ref().map(String::as_str);
        let fits = |screen: String| {
            assert!(screen.lines().count() <= size.1, "{screen}");
            let is_hostile = |c: char| match c {
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
                c => c.is_control() && c != '\n',
            };
            assert!(!screen.contains(is_hostile), "{screen:?}");
            assert!(screen.lines().all(|line| line.chars().count() <= size.0), "{screen}");
        };
        fits(terminal.shows(&["3 processes", first, second, third]));
        // The user selects each process from the list, and then returns to the list.
        for pid in [first, second, third] {
            terminal.press("Enter");
            fits(terminal.shows(&[&format!("process {pid}"), "queue", "active"]));
            terminal.press("Escape");
            terminal.shows(&["3 processes"]);
            terminal.press("Down");
        }
        terminal.press("q");
    }
}
