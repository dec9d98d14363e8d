//! Checks that the colors in `style.css` are legible and can be distinguished, even under
//! deuteranopia.

const STYLE: &str = include_str!("style.css");

/// The minimum difference between two kinds of bars under deuteranopia (CIE76, in which a
/// difference of 2 is just visible).
const APART: f64 = 15.0;
/// The minimum contrast of text and lines against their background, as WCAG requires for text.
const CONTRAST: f64 = 4.5;

type Triple = [f64; 3];

/// Returns the value of a custom property in the light (0) or dark (1) set.
fn color(name: &str, set: usize) -> Triple {
    let mark = format!("--{name}: ");
    let mut values = STYLE.split(&mark).skip(1);
    let value = values.nth(set).unwrap_or_else(|| panic!("no --{name} {set}"));
    let hex = value.trim_start_matches('#');
    let hex: String = hex.chars().take_while(char::is_ascii_hexdigit).collect();
    let wide =
        if hex.len() == 3 { hex.chars().flat_map(|digit| [digit, digit]).collect() } else { hex };
    [0, 2, 4].map(|at| {
        let byte = u8::from_str_radix(&wide[at..at + 2], 16).unwrap();
        let share = f64::from(byte) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    })
}

fn times(matrix: [Triple; 3], it: Triple) -> Triple {
    matrix.map(|row| row.iter().zip(it).map(|(a, b)| a * b).sum())
}

/// Simulates deuteranopia (Machado, Oliveira and Fernandes 2009, severity 1).
fn deuteranopia(it: Triple) -> Triple {
    let matrix = [
        [0.367_322, 0.860_646, -0.227_968],
        [0.280_085, 0.672_501, 0.047_413],
        [-0.011_820, 0.042_940, 0.968_881],
    ];
    times(matrix, it).map(|part: f64| part.clamp(0.0, 1.0))
}

fn lab(it: Triple) -> Triple {
    let matrix = [
        [0.412_456_4, 0.357_576_1, 0.180_437_5],
        [0.212_672_9, 0.715_152_2, 0.072_175_0],
        [0.019_333_9, 0.119_192_0, 0.950_304_1],
    ];
    let [x, y, z] = times(matrix, it);
    let f = |t: f64| {
        if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 }
    };
    let [x, y, z] = [f(x / 0.950_47), f(y), f(z / 1.088_83)];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn difference(a: Triple, b: Triple) -> f64 {
    let squares = lab(a).into_iter().zip(lab(b)).map(|(a, b)| (a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

fn contrast(a: Triple, b: Triple) -> f64 {
    let light = |it: Triple| 0.2126 * it[0] + 0.7152 * it[1] + 0.0722 * it[2] + 0.05;
    let [a, b] = [light(a), light(b)];
    a.max(b) / a.min(b)
}

#[test]
fn peers_and_losses_differ_from_ours_under_deuteranopia() {
    for set in [0, 1] {
        let ours = color("ours", set);
        for other in ["peer", "bad"] {
            let other = color(other, set);
            let seen = difference(deuteranopia(ours), deuteranopia(other));
            assert!(seen >= APART && difference(ours, other) >= APART, "set {set}: {seen:.1}");
        }
    }
}

#[test]
fn text_contrasts_with_its_background() {
    for name in ["text", "quiet", "good", "bad", "ours", "peer"] {
        for set in [0, 1] {
            for on in ["back", "card"] {
                let found = contrast(color(name, set), color(on, set));
                assert!(found >= CONTRAST, "set {set}: --{name} on --{on}: {found:.2}");
            }
        }
    }
}
