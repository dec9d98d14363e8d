//! A tree of lines with a column next to it.

pub(super) struct Branch {
    label: String,
    /// The text in the column next to the tree.
    beside: String,
    below: Vec<Branch>,
}

impl Branch {
    pub(super) fn new(
        label: impl Into<String>,
        beside: impl Into<String>,
        below: Vec<Self>,
    ) -> Self {
        Self { label: label.into(), beside: beside.into(), below }
    }
}

const MAX_BRANCHES: usize = 16;

/// Draws trees below each other. One aligned column is next to all of them.
pub(super) fn draw(roots: &[Branch]) -> String {
    let mut lines = Vec::new();
    for root in roots {
        lines.push((root.label.clone(), root.beside.clone()));
        below(&root.below, "", &mut lines);
    }
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let mut drawing = String::new();
    for (left, right) in lines {
        drawing += format!("{left:width$}  {right}").trim_end();
        drawing.push('\n');
    }
    drawing
}

fn below(branches: &[Branch], indent: &str, lines: &mut Vec<(String, String)>) {
    let (shown, hidden) = branches.split_at(branches.len().min(MAX_BRANCHES));
    for (index, branch) in shown.iter().enumerate() {
        let is_last = hidden.is_empty() && index + 1 == shown.len();
        let (joint, rail) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push((format!("{indent}{joint}{}", branch.label), branch.beside.clone()));
        below(&branch.below, &format!("{indent}{rail}"), lines);
    }
    if !hidden.is_empty() {
        lines.push((format!("{indent}└─ {} more", hidden.len()), "(--json lists all)".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(label: &str, below: Vec<Branch>) -> Branch {
        Branch::new(label, format!("<{label}>"), below)
    }

    #[test]
    fn branches_hang_from_rails_and_the_column_is_level() {
        let tree =
            branch("root", vec![branch("a", vec![branch("deep", vec![])]), branch("b", vec![])]);
        let drawing = draw(&[tree, branch("c", vec![])]);
        let expected = "\
root        <root>
├─ a        <a>
│  └─ deep  <deep>
└─ b        <b>
c           <c>
";
        assert_eq!(drawing, expected);
    }

    #[test]
    fn too_many_branches_are_counted_and_not_drawn() {
        let many = (0..MAX_BRANCHES + 5).map(|_| branch("x", vec![])).collect();
        let drawing = draw(&[branch("root", many)]);
        assert_eq!(drawing.lines().count(), 1 + MAX_BRANCHES + 1);
        assert!(drawing.lines().last().unwrap().starts_with("└─ 5 more"));
    }
}
