//! Claims about the generated code. To add a claim, add a function to `crates/probes` and a row
//! here.

use super::listing::Function;

/// A function of `crates/probes`, and the property that it must have.
pub type Claim = (&'static str, Is);

pub enum Is {
    /// The function has the same instructions as another one.
    Like(&'static str),
    /// The function accesses the memory of other threads only by plain loads and stores, and by
    /// this number of locked instructions. Out-of-line calls for rare cases do not count.
    Locking(usize, And),
}

pub enum And {
    Nothing,
    NoCall,
    /// The function does not use the stack. If a rare case passed references to its arguments, the
    /// usual path would store them.
    NoStack,
}

pub const CLAIMS: &[Claim] = &[
    ("mpscq::push", Is::Locking(1, And::NoStack)),
    ("percpu::compiled_out", Is::Like("percpu::unprotected")),
    ("percpu::queue", Is::Locking(0, And::NoCall)),
    ("percpu::on_demand", Is::Locking(0, And::Nothing)),
    ("percpu::every_op", Is::Locking(1, And::Nothing)),
    ("percpu::any_mode", Is::Locking(1, And::Nothing)),
    ("rcu::qsbr", Is::Like("rcu::unprotected")),
    ("rcu::quiescent", Is::Locking(0, And::Nothing)),
    ("rcu::guarded", Is::Locking(0, And::Nothing)),
    ("rcu::sleepable", Is::Locking(0, And::Nothing)),
];

pub fn broken((name, is): &Claim, found: &[Function]) -> Option<String> {
    let find = |name| found.iter().find(|function| function.is(name));
    let Some(function) = find(name) else {
        return Some(format!("{name}: crates/probes has no such function"));
    };
    let nr_locked = function.nr_locked();
    match *is {
        Is::Like(other) => match find(other) {
            None => Some(format!("{other}: crates/probes has no such function")),
            Some(other) if other.lines == function.lines => None,
            Some(other) => Some(format!("the machine code differs:\n{function}{other}")),
        },
        Is::Locking(nr, _) if nr_locked != nr => {
            Some(format!("{nr_locked} locked instructions and fences instead of {nr}:\n{function}"))
        }
        Is::Locking(_, And::NoCall) if function.calls() => {
            Some(format!("contains a call:\n{function}"))
        }
        Is::Locking(_, And::NoStack) if function.uses_stack() => {
            Some(format!("uses the stack:\n{function}"))
        }
        Is::Locking(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::listing::functions;
    use super::*;

    fn is_broken(is: Is, body: &str) -> bool {
        let listing = format!(
            "0000000000001000 <p::one>:\n    1000:\t{body}\n    1004:\tret\n\n\
             0000000000002000 <p::two>:\n    2000:\tincq   0x10(%rax)\n    2004:\tret\n"
        );
        broken(&("p::one", is), &functions(&listing, "p::")).is_some()
    }

    #[test]
    fn a_locked_instruction_too_many_and_one_too_few_are_found() {
        for (body, nr_locked) in [
            ("incq   0x10(%rax)", 0),
            ("lock xadd %eax,(%rbx)", 1),
            ("xchg   %eax,(%rbx)", 1),
            ("mfence", 1),
            ("xchg   %ax,%ax", 0),
            ("call   3000 <p::three>", 0),
        ] {
            for claimed in 0..3 {
                let is_found = is_broken(Is::Locking(claimed, And::Nothing), body);
                assert_eq!(is_found, claimed != nr_locked, "{body}");
            }
        }
    }

    #[test]
    fn a_stack_slot_is_found() {
        assert!(is_broken(Is::Locking(0, And::NoStack), "mov    %rdi,0x8(%rsp)"));
        assert!(is_broken(Is::Locking(0, And::NoStack), "push   %rbx"));
        assert!(!is_broken(Is::Locking(0, And::NoStack), "incq   0x10(%rax)"));
    }

    #[test]
    fn a_call_is_found_and_so_is_a_difference() {
        assert!(is_broken(Is::Locking(0, And::NoCall), "call   3000 <p::three>"));
        assert!(is_broken(Is::Locking(0, And::NoCall), "jmp    3000 <p::three>"));
        assert!(!is_broken(Is::Locking(0, And::NoCall), "jne    1004 <p::one+0x4>"));
        assert!(is_broken(Is::Like("p::two"), "incq   0x18(%rax)"));
        assert!(!is_broken(Is::Like("p::two"), "incq   0x10(%rax)"));
        assert!(is_broken(Is::Like("p::three"), "incq   0x10(%rax)"));
    }
}
