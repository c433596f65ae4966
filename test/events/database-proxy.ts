// Stands between a client and the database, and fails as networks do: cuts connections at a chosen byte, or
// lets them die without a word.
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';

export class DatabaseProxy {
  /** Sees what a client sends before it is passed on. */
  onSent: (connection: Socket, bytes: Buffer) => void = () => {};
  private readonly connections = new Set<Socket>();
  private readonly silenced = new Set<Socket>();
  private readonly unanswered = new Set<Socket>();
  private port = 0;

  private constructor(
    private readonly server: net.Server,
    private readonly target: URL,
  ) {
    server.on('connection', (client) => this.join(client));
  }

  static async start(databaseUrl: string): Promise<DatabaseProxy> {
    const server = net.createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new DatabaseProxy(server, new URL(databaseUrl));
  }

  get url(): string {
    const url = new URL(this.target);
    url.hostname = '127.0.0.1';
    url.port = String((this.server.address() as AddressInfo).port);
    return url.href;
  }

  cut(): void {
    for (const connection of this.connections) connection.destroy();
  }

  /** From now on, nothing passes on the connections that are open, in either direction. */
  silence(): void {
    for (const connection of this.connections) this.silenced.add(connection);
  }

  /** Cuts this client's connection in place of giving it the next answer: what it asked for is done. */
  loseAnswer(connection: Socket): void {
    this.unanswered.add(connection);
  }

  /** Cuts what is open and refuses what comes, until `accept`. */
  async refuse(): Promise<void> {
    this.port = (this.server.address() as AddressInfo).port;
    await this.stop();
  }

  async accept(): Promise<void> {
    this.server.listen(this.port, '127.0.0.1');
    await once(this.server, 'listening');
  }

  async stop(): Promise<void> {
    this.cut();
    this.server.close();
    await once(this.server, 'close');
  }

  private join(client: Socket): void {
    const server = net.connect(Number(this.target.port), this.target.hostname);
    client.on('data', (bytes) => this.onSent(client, bytes));
    this.relay(client, server);
    this.relay(server, client);
  }

  private relay(from: Socket, to: Socket): void {
    this.connections.add(from);
    from.on('data', (bytes) => {
      if (this.unanswered.delete(to)) to.destroy();
      else if (!this.silenced.has(from) && !to.destroyed) to.write(bytes);
    });
    from.on('error', () => undefined);
    from.on('close', () => {
      this.connections.delete(from);
      to.destroy();
    });
  }
}
