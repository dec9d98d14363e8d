//! The published page, seen from inside. `crates/top/tests/top.rs` reads it from outside.

use afterwork::page::{self, ASKED_AT, Kind, Page};
use afterwork::workqueue::Group;
use rustix::process::{Pid, Signal, kill_process};
use sync::shared_file::SharedFile;

use crate::*;

/// Requests a round that begins after this call, and returns the page.
fn ask(path: &Path, number: u32) -> Page {
    let file = SharedFile::open(path).unwrap();
    let read = || Page::read(&std::fs::read(path).unwrap());
    let before = read().unwrap().round;
    file.notify(ASKED_AT, number).unwrap();
    let mut answer = None;
    until("an answer arrives", || {
        answer = read().ok().filter(|page| page.is_whole() && page.round >= before + 2);
        answer.is_some()
    });
    answer.unwrap()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < give_up, "not within the limit: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn every_subsystem_is_on_the_page_while_it_exists() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    let again = observe::publish().unwrap();
    assert_eq!(path, again);

    let group = Group::builder("tenant").max_active(2).shares(300).build().unwrap();
    let queue = Workqueue::builder("shown").max_active(1).group(&group).build().unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let item = move || {
        inside.send(()).unwrap();
        may_go.recv().ok();
    };
    queue.spawn_detached(item).unwrap();
    is_inside.recv().unwrap();
    let waits = queue.spawn(|| ());
    let mut mailbox = Mailbox::builder().name("letters").build();
    mailbox.poster().post(1).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
    let counts = PerCpu::builder().name("counts").build(|_| 0).unwrap();
    counts.drain_all(|_, count| *count += 1);
    rcu::call(|| ());
    rcu::barrier();

    let page = ask(&path, 1);
    assert_eq!(page.pid, std::process::id());
    let find = |kind: Kind, name: &str| {
        let found = page.of(kind).find(|record| record.name == name).cloned();
        found.unwrap_or_else(|| panic!("{name} is missing in {page:?}"))
    };
    let shown = find(Kind::Queue, "shown");
    assert_eq!(shown.figure("nr_active"), Some(1));
    assert_eq!(shown.figure("max_active"), Some(1));
    assert!(shown.detail.ends_with(", tenant"), "{}", shown.detail);
    let tenant = find(Kind::Group, "tenant");
    let figures = ["nr_active", "nr_waiting", "max_active", "shares", "nr_queues"];
    assert_eq!(figures.map(|name| tenant.figure(name).unwrap()), [1, 0, 2, 300, 1]);
    assert_eq!(find(Kind::Mailbox, "letters").figure("received"), Some(1));
    assert_eq!(find(Kind::PerCpu, "counts").figure("drains"), Some(1));
    assert!(find(Kind::Rcu, "rcu").figure("callbacks") >= Some(1));
    let mut pools = page.of(Kind::Pool);
    assert!(pools.any(|pool| pool.figure("nr_workers") >= Some(1)));

    go.send(()).unwrap();
    waits.join().unwrap();
    drop((queue, group, mailbox, counts));
    let page = ask(&path, 2);
    let gone = ["shown", "tenant", "letters", "counts"];
    let is_gone = |name: &str| !gone.contains(&name);
    assert!(page.records.iter().all(|record| is_gone(&record.name)));

    assert!(observe::unpublish());
    assert!(!path.exists() && !observe::unpublish());
}

#[test]
fn a_page_with_a_closed_descriptor_is_removed() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    let is_it = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to == path);
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = numbers.map(|entry| entry.unwrap().path());
    let link = links.into_iter().find(|link| is_it(link)).unwrap();
    let number: i32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let theirs_at = std::env::temp_dir().join(format!("aw-{}-theirs", std::process::id()));
    let theirs = std::fs::File::create(&theirs_at).unwrap();
    // SAFETY: the call takes two numbers. The page's descriptor then refers to the other file.
    assert!(unsafe { libc::dup2(theirs.as_raw_fd(), number) } >= 0);
    let file = SharedFile::open(&path).unwrap();
    let mut question = 0;
    until("the page is removed", || {
        question += 1;
        file.notify(ASKED_AT, question).unwrap();
        !path.exists()
    });
    assert_eq!(theirs.metadata().unwrap().len(), 0);
    let again = observe::publish().unwrap();
    assert!(ask(&again, 1).is_whole() && observe::unpublish());
    // SAFETY: the call takes a number. It closes the copy of the other file once.
    assert_eq!(unsafe { libc::close(number) }, 0);
    std::fs::remove_file(&theirs_at).unwrap();
}

#[test]
fn child_publishes_its_own_objects_only() {
    let _alone = alone();
    let _queue = Workqueue::builder("parent's").build().unwrap();
    let _mailbox = Mailbox::<u32>::builder().name("parent's").build();
    let _slots = PerCpu::builder().name("parent's").build(|_| 0).unwrap();
    rcu::call(|| ());
    rcu::barrier();
    let of_parent = observe::publish().unwrap();
    succeeds_in_child(|| {
        let path = observe::publish().unwrap();
        assert_ne!(path, of_parent);
        let queue = Workqueue::builder("child's").build().unwrap();
        rcu::call(|| ());
        rcu::barrier();
        let page = ask(&path, 1);
        assert_eq!((observe::unpublish(), path.exists()), (true, false));
        // The child cannot remove its parent's page.
        assert_eq!((observe::unpublish(), of_parent.exists()), (false, true));
        let names = page.records.iter().map(|record| record.name.clone());
        let names: Vec<_> = names.collect();
        drop(queue);
        assert!(!names.iter().any(|name| name == "parent's"), "{names:?}");
        for ours in ["child's", "rcu"] {
            assert!(names.iter().any(|name| name == ours), "{names:?}");
        }
    });
    assert!(of_parent.exists() && observe::unpublish());
}

#[test]
fn truncated_or_overwritten_file_is_created_again() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    ask(&path, 1);
    let file = SharedFile::open(&path).unwrap();
    file.write_at(&[0xa5; 4096], 0).unwrap();
    // A request fails on an empty file, but a round in progress may write the page again.
    until("the file is cut short", || {
        file.set_len(0).unwrap();
        file.notify(ASKED_AT, 2).is_err()
    });
    file.set_len(256).unwrap();
    file.notify(ASKED_AT, 3).unwrap();
    until("the page is whole", || Page::read(&std::fs::read(&path).unwrap()).is_ok());
    ask(&path, 4);
    file.set_len(0).unwrap();
    assert!(observe::unpublish(), "its thread ends all the same");
}

#[test]
fn a_process_that_lives_under_the_same_number_keeps_its_page() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    assert!(observe::unpublish());
    // As by a process in another container, which shares the directory but not the process IDs.
    let other = SharedFile::create(&path).unwrap();
    other.write_at(b"alive", 0).unwrap();
    assert!(other.lock().unwrap());
    let ours = observe::publish().unwrap();
    assert_ne!(ours, path);
    assert_eq!(ask(&ours, 1).pid, std::process::id());
    assert!(observe::unpublish() && !ours.exists());
    assert_eq!(std::fs::read(&path).unwrap(), b"alive");
    drop(other);
    // A child that another test forks may hold the lock for a short time.
    let left = SharedFile::open(&path).unwrap();
    until("the lock is released", || !left.is_locked().unwrap());
    assert_eq!(observe::publish().unwrap(), path, "it was left behind");
    assert!(observe::unpublish());
}

#[test]
fn a_child_of_fork_does_not_keep_its_parents_page_alive() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    let file = SharedFile::open(&path).unwrap();
    assert!(file.is_locked().unwrap());
    let (mut reader, mut writer) = io::pipe().unwrap();
    // The child sleeps until it is killed.
    let Some(child) = children::fork() else {
        writer.write_all(b"!").ok();
        loop {
            thread::park();
        }
    };
    reader.read_exact(&mut [0]).unwrap();
    assert!(file.is_locked().unwrap(), "the parent has lost it");
    assert!(observe::unpublish());
    // A child of another test may hold the lock until it executes another program.
    let let_go = || until("the lock is released", || !file.is_locked().unwrap());
    let outcome = catch_unwind(AssertUnwindSafe(let_go));
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    wait_for(child);
    outcome.unwrap();
}

#[test]
fn next_publisher_removes_the_page_of_a_killed_process() {
    let _alone = alone();
    // The child exits as abruptly as a killed process.
    let left = &succeeds_in_child(|| {
        let path = observe::publish().unwrap();
        io::stderr().write_all(path.to_str().unwrap().as_bytes()).unwrap();
    });
    // Any process of this user may have removed the page since.
    let left = Path::new(left);
    // This is the page of a process in another container, which is not visible from here.
    let number = u32::MAX - std::process::id();
    let elsewhere = &Path::new(page::DIRECTORY).join(page::name_of(number, 7));
    let lives = SharedFile::create(elsewhere).unwrap();
    assert!(lives.lock().unwrap());
    // This file is not a page but has a similar name.
    let other = &elsewhere.with_extension("tmp");
    std::fs::write(other, "").unwrap();
    observe::publish().unwrap();
    assert!(!left.exists() && elsewhere.exists() && other.exists());
    assert!(observe::unpublish());
    drop(lives);
    std::fs::remove_file(other).unwrap();
    // A child that another test forks may hold the lock for a short time.
    let is_locked = || SharedFile::open(elsewhere).is_ok_and(|file| file.is_locked().unwrap());
    until("the lock is released", || !is_locked());
    observe::publish().unwrap();
    assert!(!elsewhere.exists(), "its process has exited");
    assert!(observe::unpublish());
}

#[test]
fn publish_without_write_access_fails_harmlessly() {
    const TEST: &str = "page::publish_without_write_access_fails_harmlessly";
    if mode().is_some() {
        // The second call fails in the same way, because the first left no file.
        for _ in 0..2 {
            println!("refused: {}", observe::publish().unwrap_err());
        }
        return;
    }
    let test = this_test(TEST, "inner");
    let child = Command::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(test.get_program())
        .args(test.get_args())
        .envs(test.get_envs().map(|(name, value)| (name, value.unwrap())))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{child:?}");
    assert_eq!(said.matches("refused: File too large").count(), 2, "{said}");
}

#[test]
fn a_process_whose_name_is_no_text_is_shown_all_the_same() {
    let _alone = alone();
    let before = std::fs::read("/proc/self/comm").unwrap();
    std::fs::write("/proc/self/comm", b"\x1b[31m\x07\xffred").unwrap();
    let path = observe::publish().unwrap();
    std::fs::write("/proc/self/comm", before.trim_ascii_end()).unwrap();
    assert_eq!(ask(&path, 1).name, "?[31m?\u{fffd}red");
    assert!(observe::unpublish());
}

#[test]
fn stale_page_is_replaced_and_can_be_published_again() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    assert!(observe::unpublish());
    std::fs::write(&path, b"left by a killed process").unwrap();
    assert_eq!(observe::publish().unwrap(), path);
    ask(&path, 1);
    assert!(observe::unpublish());
    // A symbolic link is removed, and its target is not changed.
    let target = std::env::temp_dir().join(format!("aw-target-{}", std::process::id()));
    std::fs::write(&target, b"precious").unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    observe::publish().unwrap();
    ask(&path, 1);
    assert!(observe::unpublish());
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    std::fs::remove_file(&target).unwrap();
}
