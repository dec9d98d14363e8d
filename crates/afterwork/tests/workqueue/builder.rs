//! Values that builders reject, and the errors that they return.

use afterwork::mailbox::{Worker, WorkerError};
use afterwork::percpu::{self, PerCpu};

use crate::support::*;

fn refused(builder: Builder) -> BuildError {
    builder.build_in(&registry("2 core")).expect_err("it must be rejected")
}

#[test]
fn name_with_a_nul_is_rejected_by_each_builder() {
    let kinds: [fn(Builder) -> Builder; 4] =
        [|it| it, Builder::with_rescuer, Builder::ordered, Builder::bh];
    for name in ["\0", "nul\0inside", "at the end\0"] {
        for kind in kinds {
            assert!(matches!(refused(kind(queue(name))), BuildError::Name));
        }
        assert!(matches!(Worker::builder(name).build(), Err(WorkerError::Name)));
        let data = PerCpu::builder().name(name).build(|_| 0);
        assert!(matches!(data, Err(percpu::BuildError::Name)));
        let params = Params { thread_name: name.into(), ..Params::default() };
        assert!(Registry::new(Topology::synthetic("1 core").unwrap(), params).is_err());
        // This name is only displayed. It is not the name of a thread.
        let mailbox = Mailbox::<u32>::builder().name(name).build();
        mailbox.poster().post(1).unwrap();
    }
    // Every other string is a valid name.
    for name in ["", "new\nline", "\u{7}", "🦀 ünï", &"x".repeat(500)] {
        let queue = queue(name).with_rescuer().build().unwrap();
        assert_eq!(queue.name(), name);
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
        assert!(format!("{queue:?}").contains("Workqueue"));
    }
}

fn named(builder: Builder, text: &str) {
    assert_eq!(refused(builder).to_string(), text);
}

#[test]
fn a_limit_out_of_range_is_named() {
    for wrong in [0, 513, u32::MAX] {
        let text = format!("max_active {wrong} is not between 1 and 512");
        named(queue("q").max_active(wrong), &text);
    }
    assert_eq!(queue("q").max_active(512).alone().stats().max_active, 512);
}

#[test]
fn a_nice_value_out_of_range_is_named() {
    for wrong in [-21, 20, i8::MIN, i8::MAX] {
        let text = format!("nice value {wrong} is not between -20 and 19");
        named(queue("q").nice(wrong), &text);
    }
    queue("q").nice(19).alone();
}

#[test]
fn ordered_queue_rejects_settings_that_break_its_order() {
    let ordered = || queue("q").ordered();
    let text = "an ordered queue runs one item at a time, not 2";
    named(ordered().max_active(2), text);
    let text = "an ordered queue has one order for the whole machine, not one per cpu";
    named(ordered().affinity(Cpu), text);
    let text = "an ordered queue cannot have help(true): joiners would run items out of order";
    named(ordered().help(true), text);
    for right in [
        ordered(),
        ordered().max_active(1),
        ordered().affinity(System),
        ordered().help(false),
        ordered().strict(true),
    ] {
        let queue = right.alone();
        assert_eq!(queue.stats().max_active, 1);
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        assert_eq!(queue.stats().helped, 0);
    }
}

#[test]
fn forbidden_nice_value_is_rejected_with_the_reason() {
    let permitted = sync::thread::may_set_nice(-20).is_ok();
    let built = queue("q").nice(-20).build_in(&registry("2 core"));
    assert_eq!(built.is_ok(), permitted);
    if let Err(error) = built {
        assert!(error.to_string().starts_with("nice value -20 is refused to this process: "));
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn strict_queues_help_only_when_asked_to() {
    for (builder, helps) in [
        (queue("q"), true),
        (queue("q").strict(true), false),
        (queue("q").strict(true).help(true), true),
        (queue("q").help(false), false),
    ] {
        let (queue, plug) = builder.max_active(1).plugged();
        let handle = queue.spawn(|| ());
        queue.set_max_active(2).unwrap();
        handle.join().unwrap();
        plug.release_and_drain(&queue);
        assert!(helps || queue.stats().helped == 0);
    }
}
