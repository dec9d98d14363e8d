//! Parses the output of `objdump` into functions, without the parts that differ between builds.

use std::fmt;

pub struct Function<'a> {
    /// The names of the function. There is more than one if the compiler merged equal functions.
    pub names: Vec<&'a str>,
    /// The instructions, each with its offset from the start of the function. Jumps inside the
    /// function go to an offset.
    pub lines: Vec<(u64, String)>,
}

/// Returns the functions of a listing whose paths begin with `prefix`.
///
/// Functions are separated by empty lines. The first line of a function is `address <path>:`, and
/// the other lines are `address:\tinstruction`.
pub fn functions<'a>(listing: &'a str, prefix: &str) -> Vec<Function<'a>> {
    let all = listing.split("\n\n").filter_map(Function::read);
    all.filter(|function| function.names.iter().any(|name| name.starts_with(prefix))).collect()
}

impl<'a> Function<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut names = Vec::new();
        let mut lines = Vec::new();
        let mut begin = None;
        for line in text.trim().lines() {
            if let Some((at, name)) = head(line) {
                begin.get_or_insert(at);
                names.push(name);
            } else if let Some((at, rest)) = line.split_once(":\t") {
                let at = u64::from_str_radix(at.trim(), 16).ok()?;
                lines.push((at.checked_sub(begin?)?, tidy(rest, &names)));
            }
        }
        // Removes the padding between functions.
        let is_padding =
            |line: &str| line == "int3" || line.starts_with("nop") || line == "xchg %ax,%ax";
        while lines.last().is_some_and(|(_, line)| is_padding(line)) {
            lines.pop();
        }
        (!names.is_empty()).then_some(Self { names, lines })
    }

    /// Returns `true` for a probe. A probe is a function in a module of the crate, but not in a
    /// nested module. Nested modules contain the callers of probes.
    pub fn is_probe(&self) -> bool {
        let is_below = |name: &&str| name.split("::").count() == 3 && !name.contains(['{', '<']);
        self.names.iter().any(is_below)
    }

    /// Returns `true` if a path of the function ends with `path`.
    pub fn is(&self, path: &str) -> bool {
        let is_end = |name: &&str| {
            let before = name.strip_suffix(path);
            before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
        };
        self.names.iter().any(is_end)
    }

    pub fn is_called(&self, part: &str) -> bool {
        self.names.iter().any(|name| name.contains(part))
    }

    pub fn nr_locked(&self) -> usize {
        let locks = |line: &str| match line.split_once(' ').unwrap_or((line, "")) {
            // An exchange with memory locks implicitly. An exchange of two registers does not.
            ("xchg", operands) => operands.contains('('),
            (name, _) => matches!(name, "lock" | "mfence" | "lfence" | "sfence" | "cpuid"),
        };
        self.lines.iter().filter(|(_, line)| locks(line)).count()
    }

    pub fn uses_stack(&self) -> bool {
        self.lines.iter().any(|(_, line)| line.starts_with("push") || line.contains("(%rsp"))
    }

    pub fn calls(&self) -> bool {
        let leaves = |line: &str| line.starts_with("call") || line.contains('<');
        self.lines.iter().any(|(_, line)| leaves(line))
    }
}

/// Parses `address <name>:`.
fn head(line: &str) -> Option<(u64, &str)> {
    let (at, name) = line.split_once(" <")?;
    Some((u64::from_str_radix(at, 16).ok()?, name.strip_suffix(">:")?))
}

/// Removes addresses, repeated blanks and path prefixes. Writes the targets of jumps inside the
/// function as `+0x…`.
fn tidy(instruction: &str, own: &[&str]) -> String {
    // After `#`, objdump prints the address of a memory operand.
    let (instruction, target) = match instruction.split_once('#') {
        Some((instruction, _)) => (instruction, None),
        None => match instruction.split_once(" <") {
            Some((instruction, target)) => (instruction, target.strip_suffix('>')),
            None => (instruction, None),
        },
    };
    let mut words: Vec<&str> = instruction.split_whitespace().collect();
    let to;
    if let Some(target) = target {
        words.pop();
        let inside = own.iter().find_map(|name| target.strip_prefix(name));
        to = match inside {
            Some("") => "+0x0".to_string(),
            Some(offset) => offset.to_string(),
            None => format!("<{}>", target.rsplit("::").next().unwrap_or(target)),
        };
        words.push(&to);
    }
    words.join(" ")
}

impl fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            writeln!(f, "{name}:")?;
        }
        for (at, line) in &self.lines {
            let (name, operands) = line.split_once(' ').unwrap_or((line, ""));
            let text = format!("  {:>5}  {name:<7} {operands}", format!("+{at:#x}"));
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\nfile:     file format elf64\n\nDisassembly of section .text:\n\n\
        0000000000001000 <p::one>:\n0000000000001000 <p::same>:\n    1000:\tmov    0x4(%r12),%eax\n\
        \x20   1004:\tjne    1009 <p::one+0x9>\n    1006:\tcall   2000 <p::two>\n    1009:\tret\n    100a:\tint3\n\n\
        0000000000002000 <p::two>:\n    2000:\tmov    0x7c67e(%rip),%rax        # b0d20 <_DYNAMIC+0x400>\n\n\
        0000000000003000 <other::one>:\n    3000:\tcall   1000 <p::one>\n";

    #[test]
    fn function_is_found_by_its_own_names_not_by_its_callees() {
        let found = functions(LISTING, "p::");
        assert_eq!(found.len(), 2);
        assert!(found[0].is("same") && found[0].is("p::one") && !found[0].is("ne"));
        assert!(found[0].is_called("::on"));
    }

    #[test]
    fn addresses_and_filling_are_left_out() {
        let found = functions(LISTING, "p::");
        let lines: Vec<&str> = found[0].lines.iter().map(|(_, line)| &**line).collect();
        assert_eq!(lines, ["mov 0x4(%r12),%eax", "jne +0x9", "call <two>", "ret"]);
        assert_eq!(found[1].lines[0].1, "mov 0x7c67e(%rip),%rax");
        let shown = found[0].to_string();
        let start = "p::one:\np::same:\n   +0x0  mov     0x4(%r12),%eax\n";
        assert!(shown.starts_with(start), "{shown}");
    }
}
