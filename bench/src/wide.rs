//! Generates the functions of the wide guest: distinct, branchy, shaped like kernel code.
//!
//! Functions are in three layers. Half are leaves; those of the second layer call one or two leaves, those of
//! the third one or two of the second. A body is a handful of statements drawn from what kernels do with
//! their structures: test a flag, move a field, walk a short list, count an event, switch on a kind. The
//! generator is seeded by a constant, so the guest is the same everywhere.

use std::fmt::Write;

/// Functions in all.
pub const FUNCTIONS: usize = 4000;
const FUNCTIONS_A_FILE: usize = 500;
const STATEMENTS: std::ops::Range<u32> = 3..7;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// First function of the second and of the third layer.
const LAYERS: [usize; 2] = [FUNCTIONS / 2, FUNCTIONS * 17 / 20];

/// A xorshift generator: the guest must not depend on a library's.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    fn below(&mut self, end: u32) -> u32 {
        self.next() % end
    }

    fn range(&mut self, range: std::ops::Range<u32>) -> u32 {
        range.start + self.below(range.end - range.start)
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u32) as usize]
    }
}

const FIELDS: &[&str] = &["o->a", "o->b", "o->c", "o->d", "o->count"];
const OPERATORS: &[&str] = &["+", "^", "-", "|", "&"];

fn expression(random: &mut Random) -> String {
    let field = random.pick(FIELDS);
    match random.below(5) {
        0 => format!("({field} {} {:#x})", random.pick(OPERATORS), random.below(1 << 16)),
        1 => format!("(x {} {field})", random.pick(OPERATORS)),
        2 => format!("({field} >> {})", random.range(1..20)),
        3 => format!("({field} * {})", random.range(3..40)),
        _ => format!("({field} {} {})", random.pick(OPERATORS), random.pick(FIELDS)),
    }
}

fn statement(random: &mut Random, out: &mut String, calls: &mut Vec<usize>) {
    let value = expression(random);
    let field = random.pick(FIELDS);
    let flag = 1 << random.below(12);
    let event = random.below(64);
    let operator = random.pick(OPERATORS);
    let small = random.range(1..200);
    let text = match random.below(10) {
        0 => format!("    if (o->flags & {flag:#x}) {field} = {value}; else x {operator}= {value};\n"),
        1 => format!("    {field} {operator}= {value};\n    o->flags ^= {flag:#x};\n"),
        2 => format!("    if (({value} ^ x) < {small}) return x + {small};\n"),
        3 => format!("    events[{event}]++;\n    x += {value};\n"),
        4 => {
            let steps = random.range(2..5);
            format!(
                "    for (struct object *p = o; p != o->next->next && n < {steps}; p = p->next, n++) \
                 x {operator}= p->{};\n",
                random.pick(&["a", "b", "c", "d"])
            )
        }
        5 => {
            let from = random.below(14);
            format!("    for (u32 i = {from}; i < {}; i++) x += o->name[i];\n", from + random.range(2..6))
        }
        6 => format!(
            "    switch (x & 3) {{\n    case 0: x += {small}; break;\n    case 1: {field} = x; break;\n    \
             case 2: x ^= {value}; break;\n    default: events[{event}] += x; }}\n"
        ),
        7 => format!("    if ((int){field} > (int)x && x > {small}) x = {value}; else {field}++;\n"),
        8 => format!(
            "    x = x << {0} | x >> {1};\n    o->name[{2}] = x;\n",
            small % 31 + 1,
            31 - small % 31,
            random.below(20)
        ),
        _ => match calls.pop() {
            Some(callee) => format!("    x += f{callee}(o->next, x {operator} {small});\n"),
            None => format!("    o = o->next;\n    x {operator}= {value};\n"),
        },
    };
    out.push_str(&text);
}

fn function(random: &mut Random, index: usize) -> String {
    let callees = match LAYERS.iter().filter(|&&first| index >= first).count() {
        0 => 0..0,
        1 => 0..LAYERS[0] as u32,
        _ => LAYERS[0] as u32..LAYERS[1] as u32,
    };
    let mut calls: Vec<usize> = if callees.is_empty() {
        Vec::new()
    } else {
        (0..random.range(1..3)).map(|_| random.range(callees.clone()) as usize).collect()
    };
    let mut body = String::new();
    for _ in 0..random.range(STATEMENTS) {
        statement(random, &mut body, &mut calls);
    }
    for callee in calls {
        let _ = writeln!(body, "    if (x & {}) x ^= f{callee}(o, x);", random.range(1..64));
    }
    format!(
        "NOINLINE u32 f{index}(struct object *o, u32 x) {{\n    u32 n = 0;\n{body}    return x + n;\n}}\n"
    )
}

/// File names and texts.
pub fn sources() -> Vec<(String, String)> {
    let mut random = Random(SEED);
    let declare = |out: &mut String| {
        for index in 0..FUNCTIONS {
            let _ = writeln!(out, "u32 f{index}(struct object *, u32);");
        }
    };
    let mut files = Vec::new();
    for first in (0..FUNCTIONS).step_by(FUNCTIONS_A_FILE) {
        let mut text = String::from("#include \"wide.h\"\n");
        declare(&mut text);
        for index in first..first + FUNCTIONS_A_FILE {
            text.push_str(&function(&mut random, index));
        }
        files.push((format!("wide_{first:04}.c"), text));
    }
    let mut table = String::from("#include \"wide.h\"\n");
    declare(&mut table);
    table.push_str("u32 (*const functions[])(struct object *, u32) = {\n");
    for index in 0..FUNCTIONS {
        let _ = writeln!(table, "    f{index},");
    }
    let _ = writeln!(table, "}};\nconst u32 functions_len = {FUNCTIONS};");
    files.push(("wide_table.c".to_owned(), table));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_many_and_the_same_each_time() {
        let files = sources();
        assert_eq!(files, sources());
        let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(all.matches("NOINLINE").count(), FUNCTIONS);
    }

    #[test]
    fn calls_go_down_the_layers() {
        let layer = |index: usize| LAYERS.iter().filter(|&&first| index >= first).count();
        for (_, text) in sources() {
            let mut caller = None;
            for line in text.lines() {
                let callee = line.split_once("= f").map(|(_, rest)| rest.split('(').next().unwrap_or(""));
                if let Some(rest) = line.strip_prefix("NOINLINE u32 f") {
                    caller = rest.split('(').next().and_then(|n| n.parse().ok());
                } else if let (Some(caller), Some(Ok(callee))) = (caller, callee.map(str::parse)) {
                    assert_eq!(layer(caller), layer(callee) + 1, "{line}");
                }
            }
        }
    }
}
