//! Runs one interleaving of a test and prints its steps: `steps KERNEL DESCRIPTION TEST [POINTS]`.
use guest::{description::Description, image::Image, kernel::Kernel, lifecycle};
use trace::{Choice, PointSet, Subject};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let file = std::fs::read(&args[1]).unwrap();
    let text = std::fs::read_to_string(&args[2]).unwrap();
    let image = Image::parse(&args[1], &file).unwrap();
    let description = Description::parse(&args[2], &text).unwrap();
    let kernel = Kernel::resolve(&description, &image).unwrap_or_else(|p| panic!("{p:#?}"));
    let setup = lifecycle::Setup { test: args[3].clone(), ..Default::default() };
    let started = match lifecycle::start(&kernel, &file, &setup) {
        Ok(started) => started,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2)
        }
    };
    println!("console:\n{}", started.console);
    println!("instructions {}", started.subject.machine.instructions());
    let points: PointSet = args.get(4).map_or(PointSet::default(), |p| p.parse().unwrap());
    let mut subject = started.subject;
    subject.limit_step(1_000_000);
    if args.get(5).is_some() {
        subject.narrate();
    }
    let schedule: trace::Schedule = std::env::var("SCHEDULE").unwrap_or_default().parse().unwrap();
    let mut given = schedule.0.into_iter();
    loop {
        let enabled = subject.enabled();
        let current = subject.current();
        let Some(choice) = given.next().or(current.map(Choice::from)).or(enabled.first()) else { break };
        let step = subject.step(choice, &points);
        println!(
            "enabled {enabled:?} current {current:?} -> {choice}: {} instr, {} accesses, end {:?}",
            step.instructions,
            step.accesses.len(),
            step.end
        );
        for event in &step.events {
            println!(
                "    {:?} at {} {:?}",
                event.action,
                event.pc,
                event.stack.as_ref().map(|s| s
                    .iter()
                    .map(|f| f.function.clone().unwrap_or_default())
                    .collect::<Vec<_>>()
                    .join("<"))
            );
        }
        if !step.stack.is_empty() {
            println!(
                "    stack {}",
                step.stack
                    .iter()
                    .map(|f| format!("{}:{}", f.function.clone().unwrap_or_default(), f.line.unwrap_or(0)))
                    .collect::<Vec<_>>()
                    .join(" < ")
            );
        }
        if !matches!(step.end, trace::StepEnd::Point(_)) {
            break;
        }
    }
    println!(
        "pc {:#x} {:?} {:?}",
        subject.machine.cpu(trace::CpuId(0)).pc(),
        subject.tracker.threads.current().map(|t| t.id),
        subject.tracker.stack(&subject.machine)
    );
    println!("oddities {:?}", subject.tracker.evidence.oddities);
}
