fn main() {
    let args: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(&args[1]).unwrap();
    #[allow(clippy::disallowed_types, clippy::disallowed_methods)]
    let t = std::time::Instant::now();
    let image = guest::image::Image::parse(&args[1], &bytes).unwrap();
    println!("parsed in {:?}; functions {} cfi {}", t.elapsed(), image.functions().count(), !image.call_frames().is_empty());
    let text = std::fs::read_to_string(&args[2]).unwrap();
    let d = guest::description::Description::parse(&args[2], &text).unwrap_or_else(|p| { println!("{p}"); std::process::exit(2) });
    match guest::kernel::Kernel::resolve(&d, &image) {
        Err(problems) => for p in problems { println!("{p}") },
        Ok(k) => { println!("ok {} hooks, {} stops", k.hooks.len(), k.stops().len());
            if args.len() > 3 { for h in &k.hooks { println!("{:?} {} {:?}", std::mem::discriminant(&h.event), h.name, h.arguments); } } }
    }
}
