//! What is found in small files, form by form.

use super::*;

fn read(text: &str) -> Outline {
    outline(text).unwrap()
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
        "use a::{b,,}",
        "mod",
        "#",
        "#!",
        "extern crate",
        "a::",
        "use ;;",
        "as",
        "pub use",
    ] {
        read(text);
    }
    for text in ["use a::{", "#[", "}}}", "\"abc", "'"] {
        let line = outline(&format!("\n{text}")).unwrap_err().to_string();
        assert!(line.contains("no Rust"), "{line}");
    }
}

#[test]
fn what_is_given_on_has_a_name() {
    let found =
        read("pub use a::{B, c as D}; pub(crate) use e::F; use g::H; pub(in crate::i) use j::K;");
    let given_on: Vec<_> = found
        .mentions
        .iter()
        .filter_map(|it| it.given_on.as_deref())
        .collect();
    assert_eq!(given_on, ["B", "D", "F", "K"]);
}

#[test]
fn comments_and_strings_hide_names() {
    let text = r##"
        a::a // b::b
        /* c::c /* d::d */ e::e */ f::f
        "g::g \" h::h" r"i::i \" j::j r#"k::k " l::l"# b"m::m" c"o::o" '\'' r::r
    "##;
    assert_eq!(paths(text), ["a::a", "f::f", "j::j", "r::r"]);
    assert_eq!(
        paths("fn f<'a>(x: &'a str) { 'x: loop { break 'x } }"),
        Vec::<String>::new()
    );
    assert_eq!(paths("r#type::r#match"), ["type::match"]);
}

#[test]
fn comments_keep_text_and_line() {
    let text = "x\n// one\n\"a // b\nc\" // two\n/// three\nfn f() { } // four";
    let found: Vec<_> = comments(text).unwrap();
    let found: Vec<_> = found.iter().map(|c| (c.line, c.text.as_str())).collect();
    assert_eq!(found, [(2, " one"), (4, " two"), (6, " four")]);
}

#[test]
fn a_predicate_that_needs_test_is_test_only() {
    let test_only = |attribute: &str| is_test_attribute(&trees(tokens(attribute).unwrap()));
    for attribute in [
        "test",
        "cfg(test)",
        "cfg(all(test, not(any(loom, shuttle))))",
        "cfg(all(feature = \"std\", any(test, all(test, loom))))",
    ] {
        assert!(test_only(attribute), "{attribute}");
    }
    for attribute in [
        "cfg(not(test))",
        "cfg(any(test, loom))",
        "cfg(all(loom, not(test)))",
        "cfg(feature = \"test\")",
        "cfg_attr(test, allow(dead_code))",
        "cfg()",
        "cfg",
        "",
    ] {
        assert!(!test_only(attribute), "{attribute}");
    }
}
