//! What each construct of C becomes.

use expect_test::{Expect, expect};
use promela::check::{Check, LockFunctions, Process};

const BEFORE: &str = "
struct mutex { int owner; };
struct node { struct node *next; int value; struct mutex lock; };
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);
void unknown(int a);
int x, y, z;
unsigned char small;
int table[4];
struct mutex m;
struct node first, second;
struct node *head = &first;
enum { RED, GREEN = 5 };
int helper(int a) { if (a) return x; return a + 1; }
";

fn check_of(rules: &str) -> Check {
    let mut check: Check = toml::from_str(rules).unwrap();
    check.functions = vec!["f".to_owned(), "helper".to_owned()];
    check.processes = vec![Process { name: "p".to_owned(), function: "f".to_owned(), ..Process::default() }];
    check.locks = vec![LockFunctions {
        lock: "mutex_lock".to_owned(),
        unlock: "mutex_unlock".to_owned(),
        argument: 0,
        counts: false,
    }];
    check
}

fn translate(rules: &str, body: &str) -> String {
    let source = format!("{BEFORE}\n# 1 \"f.c\"\nvoid f(void) {{\n{body}\n}}\n");
    let check = check_of(rules);
    let unit = promela::c::parse("before.c", &source, 32);
    let model = promela::extract(&check, &unit).unwrap();
    let process = &model.processes[0];
    let mut text = String::new();
    for line in &model.lines[process.first as usize..process.last as usize] {
        let place =
            line.origin.as_ref().map_or(String::new(), |origin| format!("  /* {} */", origin.at.line));
        text += &format!("{}{}{place}\n", "  ".repeat(line.indent - 1), line.text);
    }
    for gap in &model.gaps {
        text += &format!("GAP {}: {}: {}\n", gap.at, gap.text, gap.why);
    }
    if model.gaps.is_empty() {
        accepted(&model.text());
    }
    text
}

/// Spin itself accepts the whole model.
fn accepted(text: &str) {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("promela-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("m.pml"), text).unwrap();
    let out = std::process::Command::new("spin").args(["-o2", "-a", "m.pml"]).current_dir(&folder).output();
    let _ = std::fs::remove_dir_all(&folder);
    let out = out.expect("spin is installed: apt-get install spin gcc");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && !said.contains("rror"), "{said}\n{text}");
}

#[track_caller]
fn check(body: &str, expected: Expect) {
    expected.assert_eq(&translate("", body));
}

#[test]
fn one_shared_access_a_step() {
    check(
        "x = 1;",
        expect![[r#"
        x = 1;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "x = y;",
        expect![[r#"
        int t;
        t = y;  /* 2 */
        x = t;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "int a = x + y * z;",
        expect![[r#"
        int a;
        int t;
        int t_2;
        t = x;  /* 2 */
        t_2 = y;  /* 2 */
        a = t + (t_2 * z);  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "x++;",
        expect![[r#"
        int t;
        t = x;  /* 2 */
        x = t + 1;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "int a = x++ + 1;",
        expect![[r#"
        int a;
        int t;
        t = x;  /* 2 */
        x = t + 1;  /* 2 */
        a = t + 1;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "x += y;",
        expect![[r#"
        int t;
        int t_2;
        t = x;  /* 2 */
        t_2 = t + y;  /* 2 */
        x = t_2;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "table[x] = table[1];",
        expect![[r#"
        int t;
        int t_2;
        t = x;  /* 2 */
        t_2 = table[1];  /* 2 */
        table[t] = t_2;  /* 2 */
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn values_and_conversions() {
    check(
        "int a = RED, b = GREEN; a = a == b ? -a : ~b;",
        expect![[r#"
        int a;
        int b;
        a = RED;  /* 2 */
        b = GREEN;  /* 2 */
        a = ((a == b) -> (-a) : (~b));  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "int a = x ? y : z;",
        expect![[r#"
        int a;
        int t;
        if  /* 2 */
        :: x ->  /* 2 */
          t = y;  /* 2 */
        :: else ->  /* 2 */
          t = z;  /* 2 */
        fi;  /* 2 */
        a = t;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "small = (unsigned char)x;",
        expect![[r#"
        byte t;
        t = (x & 255);  /* 2 */
        small = t;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "x = y = 3;",
        expect![[r#"
        y = 3;  /* 2 */
        x = 3;  /* 2 */
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn pointers_are_indices() {
    check(
        "struct node *n = head; while (n) n = n->next;",
        expect![[r#"
        byte n;
        n = head;  /* 2 */
        do
        :: (n != NULL) ->  /* 2 */
          n = node[n].next;  /* 2 */
        :: else -> break  /* 2 */
        od;
        finished = finished + 1;
    "#]],
    );
    check(
        "head->next->value = 1;",
        expect![[r#"
        byte t;
        byte t_2;
        t = head;  /* 2 */
        t_2 = node[t].next;  /* 2 */
        node[t_2].value = 1;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "head = &second; head->next = 0; first.value = second.value;",
        expect![[r#"
        byte t;
        int t_2;
        head = 0;  /* 2 */
        t = head;  /* 2 */
        node[t].next = NULL;  /* 2 */
        t_2 = node[0].value;  /* 2 */
        node[1].value = t_2;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "if (!head || head->value == 3) x = 1;",
        expect![[r#"
        int t;
        byte t_2;
        t = head == NULL;  /* 2 */
        if  /* 2 */
        :: !t ->  /* 2 */
          t_2 = head;  /* 2 */
          t = node[t_2].value == 3;  /* 2 */
        :: else  /* 2 */
        fi;  /* 2 */
        if  /* 2 */
        :: (t) ->  /* 2 */
          x = 1;  /* 2 */
        :: else ->  /* 2 */
        fi;
        finished = finished + 1;
    "#]],
    );
    check(
        "struct node *n = head; if (n && n->value) x = 1;",
        expect![[r#"
        byte n;
        n = head;  /* 2 */
        if  /* 2 */
        :: ((n != NULL) && node[n].value) ->  /* 2 */
          x = 1;  /* 2 */
        :: else ->  /* 2 */
        fi;
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn branches() {
    check(
        "if (x) y = 1; else y = 2;",
        expect![[r#"
        if  /* 2 */
        :: (x) ->  /* 2 */
          y = 1;  /* 2 */
        :: else ->  /* 2 */
          y = 2;  /* 2 */
        fi;
        finished = finished + 1;
    "#]],
    );
    check(
        "if (x && y) z = 1;",
        expect![[r#"
        int t;
        t = x;  /* 2 */
        if  /* 2 */
        :: t ->  /* 2 */
          t = y;  /* 2 */
        :: else  /* 2 */
        fi;  /* 2 */
        if  /* 2 */
        :: (t) ->  /* 2 */
          z = 1;  /* 2 */
        :: else ->  /* 2 */
        fi;
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn loops() {
    check(
        "while (x < 3) { x++; if (y) break; if (z) continue; z = 1; }",
        expect![[r#"
        int t;
        do
        :: (x < 3) ->  /* 2 */
          t = x;  /* 2 */
          x = t + 1;  /* 2 */
          if  /* 2 */
          :: (y) ->  /* 2 */
            break;  /* 2 */
          :: else ->  /* 2 */
          fi;
          if  /* 2 */
          :: (z) ->  /* 2 */
            goto continue;  /* 2 */
          :: else ->  /* 2 */
          fi;
          z = 1;  /* 2 */
          continue: skip;
        :: else -> break  /* 2 */
        od;
        finished = finished + 1;
    "#]],
    );
    check(
        "for (int i = 0; i < 3; i++) table[i] = i;",
        expect![[r#"
        int i;
        i = 0;  /* 2 */
        do
        :: (i < 3) ->  /* 2 */
          table[i] = i;  /* 2 */
          i = i + 1;  /* 2 */
        :: else -> break  /* 2 */
        od;
        finished = finished + 1;
    "#]],
    );
    check(
        "for (;;) { if (x) break; }",
        expect![[r#"
        do
        :: true ->
          if  /* 2 */
          :: (x) ->  /* 2 */
            break;  /* 2 */
          :: else ->  /* 2 */
          fi;
        od;
        finished = finished + 1;
    "#]],
    );
    check(
        "do { x++; } while (x < y);",
        expect![[r#"
        int t;
        int t_2;
        do
        :: true ->
          t = x;  /* 2 */
          x = t + 1;  /* 2 */
          t_2 = x;  /* 2 */
          if  /* 2 */
          :: (t_2 < y)  /* 2 */
          :: else -> break  /* 2 */
          fi;
        od;
        finished = finished + 1;
    "#]],
    );
    check(
        "do { x = 1; } while (0);",
        expect![[r#"
        x = 1;  /* 2 */
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn jumps_and_scopes() {
    check(
        "switch (x) {\ncase 1: y = 1; break;\ncase 2: y = 2;\ndefault: y = 3;\n}",
        expect![[r#"
            int t;
            t = x;  /* 2 */
            if
            :: (t == 1) -> goto case  /* 2 */
            :: (t == 2) -> goto case_2  /* 2 */
            :: else -> goto case_3  /* 2 */
            fi;
            case: skip;
            y = 1;  /* 3 */
            goto after_switch;  /* 3 */
            case_2: skip;
            y = 2;  /* 4 */
            case_3: skip;
            y = 3;  /* 5 */
            after_switch: skip;
            finished = finished + 1;
        "#]],
    );
    check(
        "if (x)\ngoto out;\ny = 1;\nout:\nz = 1;",
        expect![[r#"
        if  /* 2 */
        :: (x) ->  /* 2 */
          goto out;  /* 3 */
        :: else ->  /* 2 */
        fi;
        y = 1;  /* 4 */
        out: skip;
        z = 1;  /* 6 */
        finished = finished + 1;
    "#]],
    );
    check(
        "if (x)\nreturn;\ny = 1;",
        expect![[r#"
        if  /* 2 */
        :: (x) ->  /* 2 */
          goto return_f;  /* 3 */
        :: else ->  /* 2 */
        fi;
        y = 1;  /* 4 */
        return_f: skip;
        finished = finished + 1;
    "#]],
    );
    check(
        "{ int a = 1; { int a = 2; x = a; } x = a; }",
        expect![[r#"
        int a;
        int a_2;
        a = 1;  /* 2 */
        a_2 = 2;  /* 2 */
        x = a_2;  /* 2 */
        x = a;  /* 2 */
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn calls_and_locks() {
    check(
        "mutex_lock(&m);\nx++;\nmutex_unlock(&m);",
        expect![[r#"
        int t;
        atomic { (m == 0) -> m = 1 };  /* 2 */
        t = x;  /* 3 */
        x = t + 1;  /* 3 */
        m = 0;  /* 4 */
        finished = finished + 1;
    "#]],
    );
    check(
        "mutex_lock(&head->lock); mutex_unlock(&first.lock);",
        expect![[r#"
        byte t;
        t = head;  /* 2 */
        atomic { (node[t].lock == 0) -> node[t].lock = 1 };  /* 2 */
        node[0].lock = 0;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "x = helper(1) + helper(y);",
        expect![[r#"
        int helper_result;
        int a;
        int t;
        int helper_result_2;
        int a_2;
        a = 1;  /* 2 */
        if  /* 14 */
        :: (a) ->  /* 14 */
          helper_result = x;  /* 14 */
          goto return_helper;  /* 14 */
        :: else ->  /* 14 */
        fi;
        helper_result = a + 1;  /* 14 */
        return_helper: skip;
        t = y;  /* 2 */
        a_2 = t;  /* 2 */
        if  /* 14 */
        :: (a_2) ->  /* 14 */
          helper_result_2 = x;  /* 14 */
          goto return_helper_2;  /* 14 */
        :: else ->  /* 14 */
        fi;
        helper_result_2 = a_2 + 1;  /* 14 */
        return_helper_2: skip;
        x = helper_result + helper_result_2;  /* 2 */
        finished = finished + 1;
    "#]],
    );
    check(
        "helper(2);",
        expect![[r#"
        int a;
        a = 2;  /* 2 */
        if  /* 14 */
        :: (a) ->  /* 14 */
          goto return_helper;  /* 14 */
        :: else ->  /* 14 */
        fi;
        return_helper: skip;
        finished = finished + 1;
    "#]],
    );
}

#[test]
fn what_has_no_rule_is_listed() {
    check(
        "unknown(x);\nif (unknown(1)) x = 1;\nchar *s = \"text\";\nx = sizeof(int);",
        expect![[r#"
        if  /* 3 */
        :: true ->  /* 3 */
          x = 1;  /* 3 */
        :: true ->  /* 3 */
        fi;
        finished = finished + 1;
        GAP f.c:2: unknown(x): 'unknown' is not extracted
        GAP f.c:3: unknown(1): 'unknown' is not extracted, and its value is used
        GAP f.c:4: "text": text is not modelled
        GAP f.c:5: sizeof(int): 'sizeof expression' is not translated
    "#]],
    );
    check(
        "__asm__ volatile (\"cli\");\nx = *(int *)y;",
        expect![[r#"
        finished = finished + 1;
        GAP f.c:2: __asm__ volatile ("cli"): 'gnu asm expression' is not translated
        GAP f.c:3: *(int *)y: what a pointer points to as a whole is not modelled
    "#]],
    );
}

#[test]
fn rules_of_the_table() {
    let rules = r#"
        [[rule]]
        c = "unknown($a)"
        promela = "y = $a"
        [[rule]]
        c = "unknown($a) < 0"
        promela = "true"
        else = "true"
        [[rule]]
        c = "z = ..."
        promela = "comment"
        [[rule]]
        c = "x++"
        promela = "hide"
    "#;
    let body = "unknown(x + 1);\nif (unknown(2) < 0)\nx = 1;\nz = 7;\nx++;";
    expect![[r#"
        int t;
        t = (x + 1);  /* 2 */
        y = t;  /* 2 */
        if  /* 3 */
        :: (true) ->  /* 3 */
          x = 1;  /* 4 */
        :: true ->  /* 3 */
        fi;
        /* z = 7; */
        finished = finished + 1;
    "#]]
    .assert_eq(&translate(rules, body));
    let defaults = "default.assign = 'hide'\ndefault.call = 'comment'\ndefault.condition = 'either'";
    let body = "unknown(x + 1);\nif (unknown(2) < 0)\nx = 1;\nx = sizeof(int);";
    expect![[r#"
        /* unknown(x + 1); */
        if  /* 3 */
        :: true ->  /* 3 */
          x = 1;  /* 4 */
        :: true ->  /* 3 */
        fi;
        finished = finished + 1;
    "#]]
    .assert_eq(&translate(defaults, body));
    let statements = "model.step = 'statement'";
    expect![[r#"
        x = y + z;  /* 2 */
        x = x + 1;  /* 3 */
        if  /* 4 */
        :: (x && y) ->  /* 4 */
          z = 1;  /* 4 */
        :: else ->  /* 4 */
        fi;
        finished = finished + 1;
    "#]]
    .assert_eq(&translate(statements, "x = y + z;\nx++;\nif (x && y) z = 1;"));
}

/// How a kernel says that something is read or written once: what the compiler makes sure of does nothing.
#[test]
fn accesses_made_once() {
    let sure = "do { extern void never(void) __attribute__((__error__(\"size\"))); if (!(sizeof(x) == 4)) never(); } while (0);";
    check(
        &format!(
            "y = ({{ {sure} (*(const volatile typeof( _Generic((x), int: (int)0, default: (x))) *)&(x)); }});\n\
             do {{ {sure} do {{ *(volatile typeof(z) *)&(z) = (y); }} while (0); }} while (0);\n\
             *&x = 1;\nx = ({{ y = 2; y; }});"
        ),
        expect![[r#"
            int t;
            int t_2;
            t = x;  /* 2 */
            y = t;  /* 2 */
            t_2 = y;  /* 3 */
            z = t_2;  /* 3 */
            x = 1;  /* 4 */
            finished = finished + 1;
            GAP f.c:5: ({ y = 2; y; }): 'parenthesized expression' is not translated
        "#]],
    );
}
