//! Values that builders reject, and the errors that they return.

use afterwork::{
    mailbox::{Mailbox, Worker, WorkerError},
    params::Params,
    percpu::{self, PerCpu},
    workqueue::{AffinityScope, BuildError, Builder, Registry},
};
use topology::Topology;

use crate::support::*;

fn refused(builder: Builder) -> BuildError {
    builder
        .build_in(&registry("2 core"))
        .expect_err("it must be refused")
}

#[test]
fn a_name_with_a_nul_is_refused_by_each_builder() {
    for name in ["\0", "nul\0inside", "at the end\0"] {
        let kinds = [
            queue(name),
            queue(name).with_rescuer(),
            queue(name).ordered(),
            queue(name).bh(),
        ];
        for builder in kinds {
            assert!(matches!(refused(builder), BuildError::Name));
        }
        let worker = Worker::builder(name).build();
        assert!(matches!(worker, Err(WorkerError::Name)));
        let data = PerCpu::builder().name(name).build(|_| 0);
        assert!(matches!(data, Err(percpu::BuildError::Name)));
        let params = Params {
            thread_name: name.into(),
            ..Params::default()
        };
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
    }
}

#[test]
fn a_limit_out_of_range_is_named() {
    for wrong in [0, 513, u32::MAX] {
        let error = refused(queue("q").max_active(wrong));
        assert!(matches!(error, BuildError::MaxActive(max) if max == wrong));
        assert_eq!(
            error.to_string(),
            format!("max_active {wrong} is not between 1 and 512")
        );
    }
    for right in [1, 512] {
        assert_eq!(
            alone_on_two(queue("q").max_active(right))
                .stats()
                .max_active,
            right
        );
    }
}

#[test]
fn a_nice_value_out_of_range_is_named() {
    for wrong in [-21, 20, i8::MIN, i8::MAX] {
        let error = refused(queue("q").nice(wrong));
        assert!(matches!(error, BuildError::Nice(nice) if nice == wrong));
        assert_eq!(
            error.to_string(),
            format!("nice value {wrong} is not between -20 and 19")
        );
    }
    alone_on_two(queue("q").nice(19));
}

#[test]
fn a_nice_value_that_the_process_may_not_set_is_refused_with_the_reason() {
    let permitted = sync::thread::may_set_nice(-20).is_ok();
    match queue("q").nice(-20).build_in(&registry("2 core")) {
        Ok(_) => assert!(permitted),
        Err(error) => {
            assert!(!permitted);
            assert!(
                error
                    .to_string()
                    .starts_with("nice value -20 is refused to this process: ")
            );
            assert!(std::error::Error::source(&error).is_some());
        }
    }
}

#[test]
fn an_ordered_queue_refuses_what_would_break_its_order() {
    let error = refused(queue("q").ordered().max_active(2));
    assert!(matches!(error, BuildError::OrderedMaxActive(2)));
    assert_eq!(
        error.to_string(),
        "an ordered queue runs one item at a time, not 2"
    );

    let error = refused(queue("q").affinity(AffinityScope::Cpu).ordered());
    assert!(matches!(
        error,
        BuildError::OrderedScope(AffinityScope::Cpu)
    ));
    assert_eq!(
        error.to_string(),
        "an ordered queue has one line for the whole machine, not one per cpu"
    );

    let error = refused(queue("q").ordered().help(true));
    assert!(matches!(error, BuildError::OrderedHelp));
    assert_eq!(
        error.to_string(),
        "an ordered queue cannot let joiners jump the line"
    );

    for right in [
        queue("q").ordered(),
        queue("q").ordered().max_active(1),
        queue("q").ordered().affinity(AffinityScope::System),
        queue("q").ordered().help(false),
        queue("q").ordered().strict(true),
    ] {
        let queue = alone_on_two(right);
        assert_eq!(queue.stats().max_active, 1);
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        assert_eq!(queue.stats().helped, 0);
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
        let queue = alone_on_two(builder.max_active(1));
        let plug = plug_into(&queue);
        let handle = queue.spawn(|| ());
        queue.set_max_active(2).unwrap();
        handle.join().unwrap();
        plug.release();
        queue.drain().unwrap();
        assert!(helps || queue.stats().helped == 0);
    }
}

#[test]
fn a_queue_knows_its_name() {
    let queue = alone_on_two(queue("näme of any kind\n"));
    assert_eq!(queue.name(), "näme of any kind\n");
    assert!(format!("{queue:?}").contains("Workqueue"));
    queue.spawn(|| ()).join().unwrap();
}
