/** Starts the mock server; answers its address and how to stop it. */
export function start(port?: number): Promise<{ url: string; stop: () => void }>;
