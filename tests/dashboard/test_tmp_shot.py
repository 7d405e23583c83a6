from tests.dashboard.test_looks import still, browser, pytestmark, logged_in, VIEWS
async def test_shot(browser, still):
    async with logged_in(browser, still, viewport={"width":1280,"height":800}, color_scheme="light", reduced_motion="reduce") as tab:
        for name,(view,title) in {**VIEWS, "queues": ("/queues","Queues"), "reservations": ("/reservations","Reservations"), "evictions": ("/evictions","Evictions")}.items():
            await tab.go(view); await tab.title(title); await tab.loaded(); await tab.tab.wait_for_timeout(1500)
            await tab.tab.screenshot(path=f"/tmp/l8/{name}.png")
