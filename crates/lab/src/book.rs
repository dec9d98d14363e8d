//! The pages of the book, whose snippets run as tests. `cargo xtask book` checks the list.

macro_rules! pages {
    ($($name:ident $file:literal,)*) => {
        $(
            #[doc = include_str!(concat!("../../../docs/", $file))]
            mod $name {}
        )*
    };
}

pages! {
    front "../README.md",
    readme "README.md",
    architecture "architecture.md",
    bench_method "bench-method.md",
    c "c.md",
    cheat_sheet "cheat-sheet.md",
    deferral "deferral.md",
    design "design.md",
    faq "faq.md",
    troubleshooting "troubleshooting.md",
    tutorial "tutorial.md",
    coming_from "coming-from.md",
    conformance "conformance.md",
    figures "figures.md",
    mpscq "mpscq.md",
    observing "observing.md",
    orderings "orderings.md",
    percpu "percpu.md",
    rcu "rcu.md",
    scaling "scaling.md",
    mailbox "mailbox.md",
    testing "testing.md",
    testing_your_program "testing-your-program.md",
    topology "topology.md",
    wake "wake.md",
    workqueue "workqueue.md",
}
