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
    compare "compare.md",
    deferral "deferral.md",
    design "design.md",
    faq "faq.md",
    glossary "glossary.md",
    troubleshooting "troubleshooting.md",
    tuning "tuning.md",
    tutorial "tutorial.md",
    choosing "choosing.md",
    conformance "conformance.md",
    figures "figures.md",
    from_folly "from-folly.md",
    from_kernel "from-kernel.md",
    from_liburcu "from-liburcu.md",
    from_rayon "from-rayon.md",
    from_seastar "from-seastar.md",
    from_tokio "from-tokio.md",
    mpscq "mpscq.md",
    observing "observing.md",
    orderings "orderings.md",
    percpu "percpu.md",
    rcu "rcu.md",
    scaling "scaling.md",
    srcu "srcu.md",
    mailbox "mailbox.md",
    testing "testing.md",
    testing_your_program "testing-your-program.md",
    top "top.md",
    topology "topology.md",
    wake "wake.md",
    when_not "when-not.md",
    workqueue "workqueue.md",
}
