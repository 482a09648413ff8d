//! `rockfall test`: many state spaces and one budget. What to explore follows from the kernel and from the
//! data races that show; see [`explore::jobs`] for the plan and `docs/test.md` for what the statement at the
//! end means.

use crate::commands::explore::{Bug, How, PageArguments, cores, default_path, parse_duration, parse_workers};
use crate::files::{Files, expect_folder, write_finding};
use crate::jobs_view::JobsView;
use crate::outcome::Outcome;
use crate::ram::{Ram, parse_limit};
use crate::run_folder::{self, RunFolder};
use crate::target::{self, TargetArguments};
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::campaign::{Campaign, Setting};
use campaign::code::Code;
use campaign::confirm::{self, Confirmation};
use campaign::host::Host as _;
use campaign::initial::plan;
use campaign::narrate::Names;
use campaign::race_witness::{leading_to, stories};
use campaign::recipe::Recipe;
use campaign::shorten::Shortened;
use campaign::statement::{Ending, Statement};
use campaign::store::{Ended, Record, checksum};
use campaign::target::{ALONE, Checked, Sample, Target};
use campaign::unmet::{NOWHERE, is_known};
use campaign::words::counted;
use clap::{Args, ValueEnum};
use detect::{Candidate, Detectors, Finding, RaceStatus, Signature};
use explore::jobs::{JobId, Mode};
use explore::{Found, World};
use guest::driving::uniprocessor::Uniprocessor;
use report::{Detail, Summary, json};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::Filter;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Races {
    /// Limited Happens-Before: more races in fewer interleavings, some of them impossible
    Limited,
    /// Pure Happens-Before: only races of the order that was seen
    Pure,
    /// Lockset: whatever no lock protects throughout, whether or not something else orders it
    Lockset,
    /// Look for none
    None,
}

impl From<Races> for campaign::target::Races {
    fn from(races: Races) -> Self {
        match races {
            Races::Limited => Self::Limited,
            Races::Pure => Self::Pure,
            Races::Lockset => Self::Lockset,
            Races::None => Self::None,
        }
    }
}

/// Decides by itself what to explore, until a bug shows, everything is exhausted, or the time is up.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall test kernel -k pebbles -t double_thread_fork --budget 60s\n  \
    rockfall test kernel -k my.toml -t mytest --budget 1h --html bug.html")]
pub struct Arguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// Stop after this time: 90s, 10m, 2h
    #[arg(short, long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub budget: Duration,
    /// How data races are reported
    #[arg(long, value_enum, default_value = "limited")]
    pub races: Races,
    /// Explore only the state space with all points known: the quickest way to a proof, if there is one
    #[arg(long)]
    pub maximal: bool,
    /// With --maximal: the fewest preemptions first (iterative context bounding)
    #[arg(long, requires = "maximal")]
    pub icb: bool,
    /// Preempt only where this function is on the stack; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    pub within: Vec<String>,
    /// Preempt nowhere where this function is on the stack; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    pub without: Vec<String>,
    /// Worker threads [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = parse_workers)]
    pub workers: Option<usize>,
    /// Memory that this command may use [default: 90 % of what there is]
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    pub ram: Option<u64>,
    /// Where the run is kept, and gone on with if it was not finished [default: TEST.rockfall]
    #[arg(long, value_name = "FOLDER")]
    pub run: Option<PathBuf>,
    /// Begin anew, whatever is kept of an earlier run
    #[arg(long)]
    pub fresh: bool,
    /// Keep the finding as it was first seen
    #[arg(long)]
    pub no_minimise: bool,
    /// Where the finding goes [default: TEST.finding.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub page: PageArguments,
    /// Go on after a bug and look for the next one; each is kept in a file of its own, and told once
    #[arg(long)]
    pub all: bool,
    /// How often to tell how far things are [default: 5s, on a terminal 0.2s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Tell of each interleaving on standard error, with its state space; twice: with its schedule
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "json")]
    pub verbose: u8,
    /// For programs, in place of text: one object a line for whatever happens; the last one sums up
    #[arg(long)]
    pub json: bool,
}

impl Arguments {
    /// The filters; those of `--without` come last, because the last that matches decides.
    fn filters(&self) -> Vec<Filter> {
        let within = self.within.iter().cloned().map(Filter::Within);
        within.chain(self.without.iter().cloned().map(Filter::Without)).collect()
    }
}

/// A number that stands for everything that results depend on.
fn key(target: &Target, arguments: &Arguments) -> u64 {
    let program = std::env::current_exe().and_then(std::fs::read).map_or(0, |file| checksum(&file));
    let Arguments { races, maximal, icb, within, without, all, .. } = arguments;
    let options = format!("{races:?} {maximal} {icb} {within:?} {without:?} {all}");
    checksum(format!("{:016x} {:016x} {options}", program, target.checksum()).as_bytes())
}

fn default_folder(test: &str) -> PathBuf {
    default_path(test).with_extension("").with_extension("rockfall")
}

/// Opens the folder of the run; returns it with what it holds that can be gone on with.
fn open_folder(target: &Target, arguments: &Arguments) -> Result<(RunFolder, Option<Record>), Failure> {
    let path = arguments.run.clone().unwrap_or_else(|| default_folder(&target.recipe.test));
    let key = key(target, arguments);
    if arguments.fresh {
        remove_run(&path)?;
    }
    let (folder, found) = RunFolder::open(&path, key)?;
    let say = |text: String| {
        if !arguments.json {
            eprintln!("rockfall: {text}");
        }
    };
    let shown = folder.path().display();
    let record = match found {
        run_folder::Found::Nothing => None,
        run_folder::Found::Foreign(what) if arguments.run.is_some() => {
            return Err(Failure::BadInput(format!(
                "{shown} holds a run of something else ({what}): this one differs in kernel, description, test, options, \
                 or Rockfall itself; give it another folder with --run, or take this one over with --fresh"
            )));
        }
        run_folder::Found::Foreign(_) => {
            say(format!("what {shown} holds was about another kernel or other options; beginning anew"));
            None
        }
        run_folder::Found::Run(record) => match record.ended {
            Some(Ended::Bug) => None,
            Some(Ended::Complete) => {
                say(format!("this was finished before, and is kept in {shown}; --fresh does it again"));
                Some(*record)
            }
            None if record.found.is_some() => {
                say(format!("the run in {shown} had found a bug, which is told now"));
                Some(*record)
            }
            None => {
                let proved = record.plan.jobs().iter().filter(|job| job.state.is_verified()).count();
                let (proved, spent) =
                    (counted(proved, "state space"), campaign::words::in_words(record.seconds));
                say(format!("going on with the run in {shown}: {proved} exhausted in {spent} so far"));
                Some(*record)
            }
        },
    };
    if record.is_none() {
        folder.clear();
    }
    Ok((folder, record))
}

/// Removes a run, even a damaged one, so that it can be begun anew.
fn remove_run(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path.join("run")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound && path.join("run").exists() => {
            Err(Failure::Unwritable { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let begun = Files::default().now();
    crate::interrupt::listen();
    [&arguments.output, &arguments.page.html]
        .into_iter()
        .flatten()
        .try_for_each(|path| expect_folder(path))?;
    if let Some(calls) = &arguments.target.smp.pairs {
        return crate::smp::pairs::run(arguments, calls);
    }
    if !arguments.target.smp.linux.is_empty() || !arguments.target.smp.begin.is_empty() {
        return crate::smp::test::run(arguments);
    }
    let mut target = target::load(&arguments.target)?;
    if arguments.target.show_limits {
        print!("{}", target.limits_table());
        return Ok(Verdict::Fine);
    }
    crate::target::caution(&target);
    let mode = if arguments.maximal { Mode::Maximal } else { Mode::Deepening };
    let plan = plan(&target, mode, arguments.races.into(), &arguments.filters());
    plan.jobs()
        .iter()
        .try_for_each(|job| crate::points::check(&job.points, &target.kernel, target.programs()))?;
    let Checked { started, sample, .. } = crate::target::start_checked(&target, Some(arguments.budget))?;
    target.limits = target.limits.after_run(sample.length.whole(), &target.recipe.limits);
    let (folder, record) = open_folder(&target, arguments)?;
    let plain = target.world(started);
    let kernel = Arc::clone(&target.kernel);
    let code = Code::new(&kernel);
    let ram = Ram::new(arguments.ram);
    let setting = Setting {
        cores: arguments.workers.unwrap_or_else(cores).max(1),
        started: begun,
        store: Arc::new(folder),
        memory_is_short: &|| ram.is_short(),
        fewest_first: arguments.icb,
        summarises: arguments.verbose > 0,
        ..Setting::new(&target, &plain, &code, arguments.races.into(), arguments.budget)
    };
    // To free all that a search has, piece by piece, takes seconds, and afterwards the process ends.
    let mut campaign = ManuallyDrop::new(match record {
        Some(record) => Campaign::resume(setting, record),
        None => Campaign::begin(setting, plan),
    });
    let mut view = JobsView::new(arguments.json, arguments.verbose, arguments.interval);
    let mut scene = Scene { arguments, target, plain, sample };
    for cause in campaign.causes_set_aside().to_vec() {
        scene.set_aside(cause);
    }
    loop {
        let found = campaign.run(&mut view);
        // A bug is kept until it has been reported.
        let complete = found.is_none() && campaign.plan.is_complete();
        campaign.put_down(complete.then_some(Ended::Complete));
        let Some((id, found)) = found else {
            view.finish(&campaign.plan);
            return Ok(scene.conclude(&campaign, &code));
        };
        let (verdict, cause) = scene.show(id, found, &mut campaign, &mut view, &code)?;
        if !arguments.all {
            campaign.put_down(Some(Ended::Bug));
            return Ok(verdict);
        }
        campaign.set_aside(cause.clone());
        scene.set_aside(cause);
        view.go_on();
    }
}

/// What a run is about, and the wishes of its user.
struct Scene<'a> {
    arguments: &'a Arguments,
    target: Target,
    plain: World<Uniprocessor, Detectors>,
    sample: Sample,
}

impl Scene<'_> {
    /// Sets findings with this cause aside, because they were reported before.
    fn set_aside(&mut self, cause: Signature) {
        self.plain.observer.set_aside(cause.clone());
        self.target.recipe.known.push(cause);
    }

    fn statement(&self, campaign: &Campaign<'_>, code: &Code<'_>, ending: Ending) -> String {
        let races = campaign.plan.races();
        // After a bug it is the bug that matters; the other races are for the next run.
        let shown = |known: &&Candidate| known.status == RaceStatus::Failing || ending != Ending::Bug;
        let target = &self.target;
        let shown = stories(
            races.iter().filter(shown),
            &campaign.witnesses,
            target,
            &self.plain,
            code,
            Some(campaign.end()),
        );
        let mut statement = Statement::of(campaign, target, ending);
        statement.length = self.sample.length;
        statement.text()
            + &report::races(
                shown,
                &Names::of(target),
                &|file| target.source(file),
                Detail::Worst { rest: "--json" },
            )
    }

    /// Makes the bug short, writes it to a file and tells it; returns its cause.
    fn show(
        &self,
        id: JobId,
        mut found: Found,
        campaign: &mut Campaign<'_>,
        view: &mut JobsView,
        code: &Code<'_>,
    ) -> Result<(Verdict, Signature), Failure> {
        let (arguments, target, plain) = (self.arguments, &self.target, &self.plain);
        let (seconds, interleavings) = (campaign.seconds(), campaign.interleavings());
        view.bug(&found.finding, interleavings, seconds);
        found.interleaving = interleavings;
        let points = campaign.plan.job(id).points.clone();
        let number = campaign.causes_set_aside().len() + 1;
        let first = arguments.output.clone().unwrap_or_else(|| default_path(&target.recipe.test));
        let how = How {
            wider: campaign.wider(&points),
            limits: target.limits,
            points,
            workers: arguments.workers,
            no_minimise: arguments.no_minimise,
            output: Some(numbered(&first, number)),
            page: PageArguments {
                html: arguments.page.html.as_ref().map(|html| numbered(html, number)),
                ..arguments.page
            },
            json: arguments.json,
            ..How::default()
        };
        let outcome = Outcome { length: self.sample.length, ..Outcome::of_bug(found, seconds) };
        let bug = Bug::of(target, plain, &how, &outcome).expect("it was found");
        campaign.plan.failed(leading_to(&bug.file, &campaign.plan.races(), plain, &bug.late));
        view.finish(&campaign.plan);
        let mut statement = self.statement(campaign, code, Ending::Bug);
        if confirm::is_cycle(&bug.file.finding) {
            let budget = arguments.budget.as_secs_f64() - seconds;
            let path = marked(how.output.as_deref().unwrap_or(&first), "deadlock");
            let shown = self.confirm(&bug.file.finding, budget, &path)?;
            statement = format!("The lock order is {shown}\n\n{statement}");
        }
        let verdict = bug.show(target, plain, &how, &outcome, statement.trim_end())?;
        match (arguments.json, arguments.all) {
            (false, false) => print!("{statement}"),
            (false, true) => println!("\nThe search goes on, with this bug set aside.\n"),
            (true, _) => {}
        }
        Ok((verdict, bug.file.finding.cause()))
    }

    /// Steers into the deadlock of a lock order, for as long as is left, and keeps it as a finding of its
    /// own. What came of it.
    fn confirm(&self, cycle: &Finding, seconds: f64, path: &Path) -> Result<String, Failure> {
        let began = Instant::now();
        let late = || began.elapsed().as_secs_f64() >= seconds || crate::interrupt::asked();
        let root = self.target.world_with(self.target.start()?, false);
        let cores = self.arguments.workers.unwrap_or_else(cores).max(1);
        let mut confirmed = confirm::confirm(&root, std::slice::from_ref(cycle), cores, &late);
        let Some(confirmation) = confirmed.remove(&cycle.signature()) else { return Ok(String::new()) };
        let mut shown = confirmation.to_string();
        if let Confirmation::Confirmed(found) = &confirmation {
            let points = confirm::points();
            let short = Shortened::of(&root, &points, &[], found, cores, self.target.host());
            let recipe = Recipe { lockdep: false, ..self.target.recipe.clone() };
            write_finding(&short.file(&recipe, found.interleaving), path)?;
            shown += &format!("\n  rockfall replay {}", path.display());
        }
        Ok(shown)
    }

    /// Tells the result when no bug is left, as far as anybody looked.
    fn conclude(&self, campaign: &Campaign<'_>, code: &Code<'_>) -> Verdict {
        let ending = campaign.ending();
        let gap = campaign.has_gap();
        let (rules, met) = campaign.met();
        let met_nothing = met.is_empty() && rules.iter().any(is_known);
        // Why an exhausted space proves nothing, if it does not.
        let nothing = match ending {
            Ending::Done if self.sample.alone => Some(ALONE),
            Ending::Done if met_nothing => Some(NOWHERE),
            _ => None,
        };
        let verdict = match ending {
            _ if !campaign.causes_set_aside().is_empty() => Verdict::GuestBug,
            Ending::Done if nothing.is_some() => Verdict::BadInput,
            Ending::Done => Verdict::Fine,
            _ if gap => Verdict::OwnBug,
            _ => Verdict::Fine,
        };
        let covered = self.statement(campaign, code, ending);
        if !self.arguments.json {
            print!("{covered}");
            if let Some(nothing) = nothing {
                println!("{nothing}");
            }
            return verdict.final_verdict();
        }
        let shown = match (ending, gap) {
            (Ending::Done, _) if nothing.is_some() => report::Verdict::Unsupported,
            (Ending::Done, _) => report::Verdict::Exhausted,
            (Ending::Bounded, _) => report::Verdict::Bounded,
            (_, true) => report::Verdict::Unsupported,
            _ => report::Verdict::OutOfBudget,
        };
        let summary = Summary {
            verdict: shown,
            scope: covered.trim_end(),
            finding: None,
            interleavings: campaign.interleavings(),
            seconds: campaign.seconds(),
            instructions: self.sample.length.whole(),
            estimate: None,
            exhausted_before: None,
            preemptions: None,
            schedule: None,
            points: None,
            story: None,
        };
        println!("{}", json(&summary));
        verdict.final_verdict()
    }
}

/// The path of a bug's file: `TEST.finding.json` for the first, `TEST-2.finding.json` for the second.
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 1 { path.to_owned() } else { marked(path, &number.to_string()) }
}

/// The path with a mark behind its stem: `TEST-MARK.finding.json`.
fn marked(path: &Path, mark: &str) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("test");
    let (stem, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
    path.with_file_name(format!("{stem}-{mark}{rest}"))
}
