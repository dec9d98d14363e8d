//! What is found in small files, form by form.

use super::super::lexer::lex;
use super::*;

fn read(text: &str) -> Outline {
    outline(&lex(text))
}

fn paths(text: &str) -> Vec<String> {
    read(text)
        .mentions
        .iter()
        .map(|mention| mention.segments.join("::"))
        .collect()
}

#[test]
fn use_trees_are_spread_out() {
    assert_eq!(
        paths("use a::{self, b::{c as d, e::*}, f}; use g; use ::h::i as _; pub(crate) use j::k;"),
        ["a", "a::b::c", "a::b::e::*", "a::f", "g", "h::i", "j::k"]
    );
}

#[test]
fn paths_in_code_are_found_whole() {
    assert_eq!(
        paths("fn f(x: a::B<c::D>) -> e::F { g::h::<i::J>(x.k::<u8>()); l!(m::n!()) }"),
        ["a::B", "c::D", "e::F", "g::h", "i::J", "l", "m::n"]
    );
}

#[test]
fn a_path_after_a_type_is_not_a_new_path() {
    assert_eq!(
        paths("<a::T as b::U>::c::d(); Vec::<u8>::new(); x != y;"),
        ["a::T", "b::U"]
    );
}

#[test]
fn macro_crate_is_crate() {
    assert_eq!(
        paths("$crate::wake::Parker; use $crate::rcu::x;"),
        ["crate::wake::Parker", "crate::rcu::x"]
    );
}

#[test]
fn a_bound_on_captures_imports_nothing() {
    assert_eq!(
        paths("fn f<'a>() -> impl T + use<'a> {}"),
        Vec::<String>::new()
    );
}

#[test]
fn mentions_know_their_inline_modules() {
    let found = read("mod a { mod b { use x::y; } use x::z; } use x::w;");
    let modules: Vec<_> = found
        .mentions
        .iter()
        .map(|m| m.modules.join("::"))
        .collect();
    assert_eq!(modules, ["a::b", "a", ""]);
}

#[test]
fn test_code_is_told_from_the_rest() {
    let found = read(
        "use x::no_1;
         #[cfg(test)] use x::yes_1;
         #[cfg(test)] fn f(a: [u8; 3]) { x::yes_2(); { x::yes_3() } }
         fn g() { x::no_2() }
         #[cfg(all(test, not(loom)))] mod tests { fn h() { x::yes_4() } }
         #[cfg(any(test, loom))] mod both { use x::no_3; }
         struct S { #[cfg(test)] field: u8 }
         use x::no_4;",
    );
    for mention in &found.mentions {
        let name = mention.segments.last().unwrap();
        assert_eq!(mention.in_test, name.starts_with("yes"), "{name}");
    }
    assert_eq!(found.mentions.len(), 8);
}

#[test]
fn an_inner_attribute_marks_what_encloses_it() {
    assert!(read("#![cfg(test)] use a::b;").mentions[0].in_test);
    let found = read("mod m { #![cfg(test)] use a::b; } use c::d;");
    assert!(found.mentions[0].in_test);
    assert!(!found.mentions[1].in_test);
}

#[test]
fn test_modules_in_other_files_are_listed() {
    let found = read("#[cfg(test)] mod tests; mod other; #[cfg(test)] mod a { mod b; }");
    assert_eq!(found.test_modules, [vec!["tests"], vec!["a", "b"]]);
}

#[test]
fn test_functions_are_told_from_helpers() {
    let found =
        read("#[test] #[should_panic(expected = \"x\")] fn a() {} fn b() {} #[test] pub fn c() {}");
    assert_eq!(found.tests, ["a", "c"]);
    assert_eq!(found.functions, ["a", "b", "c"]);
}

#[test]
fn an_extern_crate_is_an_import_when_it_renames() {
    let found = read("extern crate alloc; extern crate libc as c; extern \"C\" { fn f(); }");
    let imported: Vec<_> = found
        .mentions
        .iter()
        .map(|mention| mention.imported)
        .collect();
    assert_eq!(imported, [false, true]);
}

#[test]
fn broken_text_ends_and_never_panics() {
    for text in [
        "use",
        "use a::{",
        "use a::{b,,",
        "mod",
        "#[",
        "#![cfg(",
        "}}}",
        "extern crate",
        "a::",
        "use ;;",
    ] {
        read(text);
    }
}
