//! Spin on models of small functions: verdicts, counterexamples as C lines, and what goes wrong.

use expect_test::{Expect, expect};
use promela::check::Check;
use promela::spin::{Outcome, Spin, Verdict};
use promela::{Model, extract, trail};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("promela-spin-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const LOCKS: &str = "
[[lock]]
lock = 'mutex_lock'
unlock = 'mutex_unlock'
";

const COUNTER: &str = "
struct mutex { int owner; };
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);
struct mutex m, n;
int x;
void add(void)
{
    x++;
}
void add_locked(void)
{
    mutex_lock(&m);
    x++;
    mutex_unlock(&m);
}
void both(void) { mutex_lock(&m); mutex_lock(&n); mutex_unlock(&n); mutex_unlock(&m); }
void turned(void) { mutex_lock(&n); mutex_lock(&m); mutex_unlock(&m); mutex_unlock(&n); }
void toggle(void)
{
    while (x < 5)
        x = !x;
}
";

fn processes(functions: &[&str]) -> String {
    let mut text = format!("functions = {functions:?}\nsource.files = ['a.c']\n");
    for (at, function) in functions.iter().enumerate() {
        text += &format!("[[process]]\nname = 'p{at}'\nfunction = '{function}'\n");
    }
    text + LOCKS
}

fn model_of(source: &str, check: &str) -> (Check, Model) {
    let check = Check::parse(check).unwrap();
    let unit = promela::c::parse("a.c", source, 32);
    let model = extract(&check, &unit).unwrap();
    assert_eq!(model.gaps, []);
    (check, model)
}

fn spin(source: &str, check: &str) -> String {
    let folder = Folder::new();
    let (check, model) = model_of(source, check);
    let outcome: Outcome = Spin { folder: &folder.0, check: &check, model: &model }
        .run(&|_| true)
        .expect("spin and gcc are installed");
    let mut text = match &outcome.verdict {
        Verdict::Violated { what } => format!("violated: {}\n", what.split(" (at").next().unwrap()),
        Verdict::Exhausted => return format!("Exhausted, {} states\n", outcome.states),
        other => return format!("{other:?}\n"),
    };
    let trail = trail::read(&model, &outcome.model, None, &|_| true).unwrap();
    for (at, step) in trail.steps.iter().enumerate() {
        if trail.cycle == Some(at) {
            text += "for ever:\n";
        }
        let process = &model.processes[step.process].name;
        let values: Vec<String> =
            step.values.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        text += &format!(
            "{process} {} visit {} access {}: {}{}\n",
            step.at(),
            step.visit,
            step.accesses_before,
            step.statement,
            values.concat()
        );
    }
    text
}

#[track_caller]
fn check(source: &str, check: &str, expected: Expect) {
    expected.assert_eq(&spin(source, check));
}

#[test]
fn a_lost_update_is_a_short_list_of_c_lines() {
    let text = processes(&["add", "add"]).replace("['a.c']\n", "['a.c']\nproperty.finally = 'x == 2'\n");
    let text = text.replacen("\"add\", \"add\"", "\"add\"", 1);
    check(
        COUNTER,
        &text,
        expect![[r#"
        violated: assertion violated (x==2)
        p1 a.c:9 visit 1 access 0: t = x p1(2):t=0
        p0 a.c:9 visit 1 access 0: t = x p0(1):t=0
        p1 a.c:9 visit 1 access 1: x = (t+1) x=1 finished=1
        p0 a.c:9 visit 1 access 1: x = (t+1) finished=2
    "#]],
    );
}

#[test]
fn with_its_lock_it_is_exhausted() {
    let text = processes(&["add_locked", "add_locked"])
        .replace("['a.c']\n", "['a.c']\nproperty.finally = 'x == 2'\n");
    check(
        COUNTER,
        &text,
        expect![[r#"
        Exhausted, 45 states
    "#]],
    );
}

#[test]
fn locks_in_two_orders_wait_for_ever() {
    check(
        COUNTER,
        &processes(&["both", "turned"]),
        expect![[r#"
            violated: invalid end state
            p1 a.c:18 visit 1 access 0: atomic { (n == 0) -> n = 2 } n=2
            p0 a.c:17 visit 1 access 0: atomic { (m == 0) -> m = 1 } m=1
        "#]],
    );
}

#[test]
fn a_null_pointer_is_beyond_the_array() {
    let source = "
struct node { struct node *next; int value; };
struct node first;
struct node *head = &first;
int sum;
void take(void) {
    if (head)
        sum = head->value;
}
void clear(void) { head = 0; }
";
    check(
        source,
        &processes(&["take", "clear"]).replace(LOCKS, ""),
        expect![[r#"
        violated: assertion violated - invalid array index
        p0 a.c:7 visit 1 access 0: ((head!=255))
        p1 a.c:10 visit 1 access 0: head = 255 head=255
        p0 a.c:8 visit 1 access 0: t = head p0(1):t=255
        p0 a.c:8 visit 1 access 1: t_2 = node[t].value;
    "#]],
    );
}

#[test]
fn use_of_what_was_freed() {
    let source = "
struct node { struct node *next; int value; };
struct node *head;
void *malloc(unsigned size);
void free(void *p);
int sum;
void begin(void) { head = malloc(sizeof(struct node)); head->value = 7; }
void take(void) {
    struct node *n = head;
    if (n)
        sum = n->value;
}
void drop(void) {
    struct node *n = head;
    head = 0;
    free(n);
}
";
    let text = processes(&["take", "drop"]).replace(LOCKS, "[[heap]]\nalloc='malloc'\nfree='free'\n");
    let text = text.replace(
        "[\"take\", \"drop\"]\n",
        "[\"take\", \"drop\", 'begin']\nsetup = ['begin()']\npools.node = 2\n",
    );
    check(
        source,
        &text,
        expect![[r#"
            violated: assertion violated  !(node[n].freed)
            p1 a.c:14 visit 1 access 0: n = head p1(2):n=0
            p0 a.c:9 visit 1 access 0: n = head p0(1):n=0
            p0 a.c:10 visit 1 access 0: ((n!=255))
            p1 a.c:15 visit 1 access 0: head = 255 head=255
            p1 a.c:16 visit 1 access 0: d_step { if :: (n != NULL) -> assert(!node[n].freed); node[n].freed = true :: else fi }
            p0 a.c:11 visit 1 access 0: assert(!(node[n].freed))
        "#]],
    );
}

#[test]
fn a_loop_for_ever_is_a_lasso() {
    let text = processes(&["toggle"]).replace("['a.c']\n", "['a.c']\nproperty.ltl = '<> (finished == 1)'\n");
    check(
        COUNTER,
        &text,
        expect![[r#"
        violated: acceptance cycle
        for ever:
        p0 a.c:21 visit 1 access 0: ((x<5))
        p0 a.c:22 visit 1 access 0: t = !(x) p0(1):t=1
        p0 a.c:22 visit 1 access 1: x = t x=1
        p0 a.c:21 visit 2 access 0: ((x<5))
        p0 a.c:22 visit 2 access 0: t = !(x) p0(1):t=0
        p0 a.c:22 visit 2 access 1: x = t x=0
    "#]],
    );
}

#[test]
fn searches_that_do_not_finish_say_so() {
    let source = "int x; void grow(void) { while (x < 3000000) x++; }";
    let small = processes(&["grow"]).replace(LOCKS, "[search]\nmemory-megabytes = 8\n");
    check(
        source,
        &small,
        expect![[r#"
            OutOfMemory { megabytes: 8 }
        "#]],
    );
    let bits = processes(&["grow"]).replace(LOCKS, "[search]\nbitstate = true\ndepth-max = 1000\n");
    check(
        source,
        &bits,
        expect![[r#"
            Bounded { by: "1000 steps" }
        "#]],
    );
    let (check, model) = model_of(source, &processes(&["grow"]).replace(LOCKS, ""));
    let folder = Folder::new();
    let asked = AtomicU32::new(0);
    let spin = Spin { folder: &folder.0, check: &check, model: &model };
    let stopped =
        spin.run(&|progress| progress.states < 1000 && asked.fetch_add(1, Ordering::Relaxed) < 1_000_000);
    let stopped = stopped.unwrap();
    assert_eq!(stopped.verdict, Verdict::Stopped);
    assert!(stopped.states >= 1000 && stopped.transitions >= 1000, "its last words: {stopped:?}");
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let wrong = |source: &str, text: &str| {
        let unit = promela::c::parse("a.c", source, 32);
        Check::parse(text).and_then(|check| extract(&check, &unit).map(|_| ())).unwrap_err()
    };
    let add = processes(&["add"]);
    expect!["the source files define no function 'add'; similar names: ad"]
        .assert_eq(&wrong("void ad(void) { }", &add));
    expect!["a.c:1: this is not C as far as the reader understands it, in 'add'"]
        .assert_eq(&wrong("void add(void) { x = = 1; }", &add));
    expect!["process 'p0': add has 1 parameters (a), and 0 arguments are given"]
        .assert_eq(&wrong("void add(int a) { }", &add));
    expect!["process 'init': a name is letters, digits and '_', and is not 'init'"]
        .assert_eq(&wrong("", &add.replace("name = 'p0'", "name = 'init'")));
    expect!["there is no [[process]]: say which functions run beside one another"]
        .assert_eq(&wrong("", "functions = ['f']\nsource.files = ['a.c']"));
    expect![[r#"
        TOML parse error at line 1, column 13
          |
        1 | functions = 1
          |             ^
        invalid type: integer `1`, expected a sequence
    "#]]
    .assert_eq(&wrong("", "functions = 1"));

    // A rule whose Promela is none, and a trail of another model.
    let rule = format!("{add}\n[[rule]]\nc = 'x++'\npromela = 'x := 1'\n");
    let (check, model) = model_of(COUNTER, &rule);
    let folder = Folder::new();
    let refused = Spin { folder: &folder.0, check: &check, model: &model }.run(&|_| true).unwrap_err();
    expect!["Spin does not accept the model: spin: model.pml:5, Error: syntax error saw 'operator: =', in 'x := 1;'; look at the rules and declarations of the check file"].assert_eq(&refused.to_string());
    let (check, model) = model_of(COUNTER, &add);
    let spin = Spin { folder: &folder.0, check: &check, model: &model };
    let outcome = spin.run(&|_| true).unwrap();
    let absent = trail::read(&model, &outcome.model, None, &|_| true).unwrap_err();
    expect!["Spin left no trail: there is no counterexample to read"].assert_eq(&absent.to_string());
    std::fs::write(folder.0.join("model.pml.trail"), "-4:-4:-4\n1:0:3\n2:1:777\n").unwrap();
    let other = trail::read(&model, &outcome.model, None, &|_| true).unwrap_err();
    expect!["the trail is not of this model (Spin says 'no matching stmnt'): check the model again to get one of its own"].assert_eq(&other.to_string());

    let (_, unused) = model_of(COUNTER, &format!("{add}\n[[rule]]\nc = 'nobody()'\npromela = 'hide'\n"));
    assert_eq!(unused.unused_rules, ["nobody()"]);
}
