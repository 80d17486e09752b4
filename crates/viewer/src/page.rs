//! Built page, embedded in the program.

use tompion_http::Response;

/// Path, media type and bytes of a file.
type File = (&'static str, &'static str, &'static [u8]);

const FILES: [File; 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../page/index.html")),
    ("/assets/app.js", "text/javascript; charset=utf-8", include_bytes!("../page/assets/app.js")),
    ("/assets/app.css", "text/css; charset=utf-8", include_bytes!("../page/assets/app.css")),
    ("/assets/worker.js", "text/javascript; charset=utf-8", include_bytes!("../page/assets/worker.js")),
];

/// Returns a file of the page by its path.
pub fn file(path: &str) -> Option<Response> {
    let (_, kind, bytes) = FILES.iter().find(|(known, ..)| *known == path)?;
    Some(Response::new(200, kind, *bytes))
}
